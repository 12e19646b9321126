"""Settings for tests, independent of the developer's environment, with everything in a temporary folder."""

import os
import tempfile
from pathlib import Path

TEST_DIR = Path(tempfile.mkdtemp(prefix="lc-"))
OF_THE_TESTS = ("LIGHTCONE_TEST_", "LIGHTCONE_SOAK_")
for name in [name for name in os.environ if name.startswith("LIGHTCONE_") and not name.startswith(OF_THE_TESTS)]:
    del os.environ[name]
os.environ.pop("DATABASE_URL", None)
os.environ["LIGHTCONE_DATA_DIR"] = str(TEST_DIR / "data")
os.environ["LIGHTCONE_REDIS_URL"] = f"unix://{TEST_DIR}/valkey/run/valkey.sock"

from lightcone_site.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# The live server of pytest-django serves static files from their sources if it finds Django's own application.
INSTALLED_APPS = [
    "django.contrib.staticfiles" if app.endswith(".ServedFiles") else app
    for app in INSTALLED_APPS  # noqa: F405
]

# A live server writes from several threads. A database in memory is shared without waiting for locks, so it is a file.
IN_MEMORY = Path("/dev/shm")  # noqa: S108
DATABASES["default"]["ENGINE"] = "tests.sqlite"  # noqa: F405
DATABASES["default"]["TEST"] = {  # noqa: F405
    "NAME": str((IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else TEST_DIR) / f"{TEST_DIR.name}.sqlite3")
}
