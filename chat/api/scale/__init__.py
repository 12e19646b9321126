"""The Scale dialect: what Scale's clients call, in both generations (/v4, /v5), translated to and from the Lightcone request."""
