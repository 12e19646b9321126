"""The Scale dialect: both generations of Scale's API (/v4, /v5), translated to and from the Lightcone request."""
