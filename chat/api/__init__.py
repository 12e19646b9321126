"""The API shapes that clients speak. One folder per dialect; each only translates to and from `engine.api`."""
