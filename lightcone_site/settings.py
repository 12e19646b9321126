"""Django settings. Every choice of the operator comes from the environment (env.py); docs/operations.md lists them all."""

from __future__ import annotations

from pathlib import Path

from lightcone_site import env
from lightcone_site.secrets import installation_secret

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = Path(env.text("DATA_DIR", str(BASE_DIR / "data"))).expanduser().resolve()
DATA_DIR.mkdir(parents=True, exist_ok=True)

DEBUG = False
SECRET_KEY = env.text("SECRET_KEY") or installation_secret(DATA_DIR, "secret_key")
LIGHTCONE_KEY_PEPPER = env.text("KEY_PEPPER") or installation_secret(DATA_DIR, "key_pepper")
LIGHTCONE_DEPLOYMENT = env.text("DEPLOYMENT") or installation_secret(DATA_DIR, "deployment", num_bytes=6)
LIGHTCONE_HOST = env.text("HOST", "127.0.0.1")
LIGHTCONE_PORT = env.integer("PORT", 8000, minimum=1, maximum=65535)
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ("localhost", "127.0.0.1", "[::1]", LIGHTCONE_HOST))
LIGHTCONE_REDIS_URL = env.text("REDIS_URL") or f"unix://{DATA_DIR}/run/valkey.sock"

INSTALLED_APPS = [
    "daphne",
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "servestatic",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "channels",
    "chat",
]

ROOT_URLCONF = "lightcone_site.urls"
ASGI_APPLICATION = "lightcone_site.asgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
