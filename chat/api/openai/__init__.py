"""The Lightcone dialect, which is also OpenAI's: the request schema as it is, answers and errors in OpenAI's shapes."""
