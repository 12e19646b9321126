"""Django settings. The operator's settings come from the environment (env.py); docs/operations.md lists them all."""

from __future__ import annotations

import os
from pathlib import Path

from chat.console.theme import UNFOLD as UNFOLD
from engine.api.media import MediaLimits
from lightcone_site import env
from lightcone_site.celery import STEPS as WORKER_STEPS
from lightcone_site.databases import broker_url, database_settings, embedded_valkey_socket
from lightcone_site.limits import RequestLimits, http_limits_read, limits_read
from lightcone_site.logs import logging_settings
from lightcone_site.private_files import installation_secret
from lightcone_site.sign_in import mail_settings, oidc_settings

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = env.folder("DATA_DIR", BASE_DIR / "data")

# The installation.
LIGHTCONE_VERSION = "0.1.0"
DEBUG = False
SECRET_KEY = env.text("SECRET_KEY") or installation_secret(DATA_DIR, "secret_key")
LIGHTCONE_KEY_PEPPER = env.text("KEY_PEPPER") or installation_secret(DATA_DIR, "key_pepper")
LIGHTCONE_DEPLOYMENT = env.text("DEPLOYMENT") or installation_secret(DATA_DIR, "deployment", num_bytes=6)
LIGHTCONE_HOST = env.text("HOST", "127.0.0.1")
LIGHTCONE_PORT = env.integer("PORT", 8000, minimum=1, maximum=65535)
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]", LIGHTCONE_HOST, *env.items("ALLOWED_HOSTS")]
CSRF_TRUSTED_ORIGINS = env.items("TRUSTED_ORIGINS")

# The model of a one-machine installation (`manage.py serve`); empty: the packaged default.
LIGHTCONE_MODEL = env.text("MODEL")
LIGHTCONE_MODEL_NAME = env.text("MODEL_NAME")

# Models that were pulled or imported, and the token for gated and private repositories of the Hugging Face hub.
LIGHTCONE_MODEL_STORE = Path(env.text("MODEL_STORE") or DATA_DIR / "models").expanduser().absolute()
LIGHTCONE_HUB_TOKEN = env.text("HUB_TOKEN")

# What the workers of this machine load beside that model, how much memory models may take together (0: a share of it),
# and after how many seconds without a request they are unloaded (0: never).
LIGHTCONE_HOST_MODELS = env.items("HOST_MODELS")
LIGHTCONE_MODEL_MEMORY_BYTES = env.integer("MODEL_MEMORY", 0, maximum=2**50)
LIGHTCONE_MODEL_IDLE_S = env.integer("MODEL_IDLE", 0, maximum=2**31 - 1)

LIGHTCONE_DEFAULT_MAX_TOKENS = env.integer("DEFAULT_MAX_TOKENS", 0, maximum=2**31)
LIGHTCONE_DRAIN_S = env.integer("DRAIN", 30, minimum=1, maximum=3600)
LIGHTCONE_DRAIN_DELAY_S = env.integer("DRAIN_DELAY", 0, maximum=600)

# Limits. All are checked before any work is done for a request.
LIGHTCONE_HTTP_LIMITS = http_limits_read()
LIGHTCONE_LIMITS = limits_read(RequestLimits)
LIGHTCONE_MEDIA_LIMITS = limits_read(MediaLimits)
DATA_UPLOAD_MAX_MEMORY_SIZE = LIGHTCONE_HTTP_LIMITS.max_body_bytes
LIGHTCONE_MAX_WAITING = env.integer("MAX_WAITING", 4096, minimum=1)
LIGHTCONE_MAX_LIVE_PER_KEY = env.integer("MAX_LIVE_PER_KEY", 64, minimum=1)
LIGHTCONE_SCHEDULING_POLICY = env.choice("SCHEDULING_POLICY", "priority", ("priority", "fcfs"))
LIGHTCONE_QUEUE_TIMEOUT_S = env.integer("QUEUE_TIMEOUT", 120, minimum=1)
LIGHTCONE_MAX_LOGIN_FAILURES = env.integer("MAX_LOGIN_FAILURES", 5, minimum=1)
LIGHTCONE_MAX_LOGIN_FAILURES_PER_ADDRESS = env.integer("MAX_LOGIN_FAILURES_PER_ADDRESS", 50, minimum=1)
LIGHTCONE_MAX_LOGIN_FAILURES_PER_ACCOUNT = env.integer("MAX_LOGIN_FAILURES_PER_ACCOUNT", 50, minimum=1)
LIGHTCONE_LOG_FIELD_CHARS = env.integer("LOG_FIELD_CHARS", 256, minimum=16)
LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK = env.boolean("ALLOW_ANONYMOUS_LOOPBACK")
LIGHTCONE_CORS_ALLOWED_ORIGINS = env.origins(
    "CORS_ALLOWED_ORIGINS", () if LIGHTCONE_ALLOW_ANONYMOUS_LOOPBACK else ("*",)
)
LIGHTCONE_TRUSTED_PROXIES = env.networks("TRUSTED_PROXIES")

# The address at which the maintenance worker serves metrics for Prometheus, without a key; port 0: none.
LIGHTCONE_METRICS_HOST = env.text("METRICS_HOST", "127.0.0.1")
LIGHTCONE_METRICS_PORT = env.integer("METRICS_PORT", 9464, maximum=65535)

# Files and batches. A request of a batch costs this share of the model's price.
LIGHTCONE_MAX_PROJECT_FILE_BYTES = env.integer("MAX_PROJECT_FILE_BYTES", 2**30, minimum=1)
LIGHTCONE_MAX_PROJECT_FILES = env.integer("MAX_PROJECT_FILES", 10_000, minimum=1)
LIGHTCONE_FILE_DAYS = env.integer("FILE_DAYS", 30, minimum=1, maximum=3650)
LIGHTCONE_MAX_BATCH_LINES = env.integer("MAX_BATCH_LINES", 50_000, minimum=1)
LIGHTCONE_MAX_OPEN_BATCHES = env.integer("MAX_OPEN_BATCHES", 16, minimum=1)
LIGHTCONE_BATCH_CONCURRENCY = env.integer("BATCH_CONCURRENCY", 8, minimum=1, maximum=1024)
LIGHTCONE_BATCH_PRICE_FACTOR = env.decimal("BATCH_PRICE_FACTOR", "0.5", maximum=1000)
LIGHTCONE_CURRENCY = env.text("CURRENCY", "USD")

# The engine (engine/config.py describes each). 0 and "auto": measured, or read from the model.
LIGHTCONE_DEVICE = env.choice("DEVICE", "cpu", ("cpu", "cuda"))
LIGHTCONE_MMPROJ = env.file_name("MMPROJ")
LIGHTCONE_WEIGHTS = env.text("WEIGHTS", "auto")
LIGHTCONE_MAX_MODEL_LEN = env.integer("MAX_MODEL_LEN", 0)
LIGHTCONE_MAX_NUM_SEQS = env.integer("MAX_NUM_SEQS", 64, minimum=1)
LIGHTCONE_MAX_NUM_BATCHED_TOKENS = env.integer("MAX_NUM_BATCHED_TOKENS", 0)
LIGHTCONE_KV_CACHE = env.choice("KV_CACHE", "auto", ("auto", "fp8"))
LIGHTCONE_KV_CACHE_BYTES = env.integer("KV_CACHE_BYTES", 0)
LIGHTCONE_KV_SPILL_BYTES = env.integer("KV_SPILL_BYTES", 0)
LIGHTCONE_KV_SPILL_FOLDER = env.folder("KV_SPILL_FOLDER", DATA_DIR)
LIGHTCONE_PREFIX_CACHING = env.boolean("PREFIX_CACHING", True)
LIGHTCONE_BATCH_INVARIANT = env.boolean("BATCH_INVARIANT")
LIGHTCONE_PROMPT_LOOKUP = env.boolean("PROMPT_LOOKUP", LIGHTCONE_DEVICE == "cpu")
LIGHTCONE_MAX_STEP_WAIT_MS = env.integer("MAX_STEP_WAIT_MS", 250, minimum=1, maximum=60_000)
LIGHTCONE_STEP_TIMEOUT = env.integer("STEP_TIMEOUT", 120)
LIGHTCONE_NUM_THREADS = env.integer("NUM_THREADS", 0)
LIGHTCONE_TOOL_PARSER = env.text("TOOL_PARSER", "auto")
LIGHTCONE_REASONING_PARSER = env.text("REASONING_PARSER", "auto")
LIGHTCONE_LOGITS_PROCESSORS = env.items("LOGITS_PROCESSORS")

# The relay writes a log entry per step ("step"), per 50 ms ("batch"), or by the number of runs ("auto"). Days that
# request logs are stored.
LIGHTCONE_LOG_FLUSH = env.choice("LOG_FLUSH", "auto", ("auto", "step", "batch"))
LIGHTCONE_LOG_DAYS = env.integer("LOG_DAYS", 30, minimum=1, maximum=3650)

# Bytes of a request's prompt and answer that are kept, in projects that have texts kept.
LIGHTCONE_LOG_TEXT_BYTES = env.integer("LOG_TEXT_BYTES", 2**18, minimum=2**10, maximum=2**22)

# Days that the audit log is kept; the database refuses to delete younger entries than a year.
LIGHTCONE_AUDIT_DAYS = env.integer("AUDIT_DAYS", 730, minimum=365, maximum=36500)

# Days that alerts which are over and their deliveries are kept, and the inner networks that webhooks may go to.
LIGHTCONE_ALERT_DAYS = env.integer("ALERT_DAYS", 90, minimum=1, maximum=3650)
LIGHTCONE_WEBHOOK_NETWORKS = env.networks("WEBHOOK_NETWORKS")

# Remote media of requests: the hosts that they may be fetched from (none: no fetching), whether http is as good as
# https, the inner networks that may be connected to, and what is kept on disk.
LIGHTCONE_MEDIA_DOMAINS = env.hosts("MEDIA_DOMAINS")
LIGHTCONE_MEDIA_HTTP = env.boolean("MEDIA_HTTP")
LIGHTCONE_MEDIA_NETWORKS = env.networks("MEDIA_NETWORKS")
LIGHTCONE_MEDIA_REDIRECTS = env.integer("MEDIA_REDIRECTS", 3, maximum=10)
LIGHTCONE_MEDIA_CACHE_BYTES = env.integer("MEDIA_CACHE_BYTES", 2**30)

# Whether keys that may do so send vectors in place of tokens.
LIGHTCONE_EMBEDS = env.boolean("EMBEDS")

# How long an answer of the playground continues while no page reads it.
LIGHTCONE_PLAYGROUND_DETACH_GRACE_S = env.integer("PLAYGROUND_DETACH_GRACE", 900, minimum=1, maximum=86400)

# Conversations of the playground: bytes of an account, days that unchanged ones are kept (0: for ever), and whether
# administrators may read them, which their owners are told.
LIGHTCONE_CHAT_QUOTA_BYTES = env.integer("CHAT_QUOTA_BYTES", 2**30, minimum=1)
LIGHTCONE_CHAT_DAYS = env.integer("CHAT_DAYS", 0, maximum=3650)
LIGHTCONE_CHAT_ADMIN_READ = env.boolean("CHAT_ADMIN_READ")
LIGHTCONE_CHAT_SHARING = env.boolean("CHAT_SHARING", True)

# Whether an account that may not use the playground is told names and e-mail addresses of administrators.
LIGHTCONE_NAME_ADMINISTRATORS = env.boolean("NAME_ADMINISTRATORS", True)

# Answers that clients may fetch again. Without them `store` has no effect, and there are no background answers.
LIGHTCONE_STORE = env.boolean("STORE", True)
LIGHTCONE_MAX_PROJECT_ANSWERS = env.integer("MAX_PROJECT_ANSWERS", 100_000, minimum=1)
LIGHTCONE_MAX_PROJECT_ANSWER_BYTES = env.integer("MAX_PROJECT_ANSWER_BYTES", 2**30, minimum=1)
LIGHTCONE_STORE_DAYS = env.integer("STORE_DAYS", 30, minimum=1, maximum=3650)

# Stores: SQLite and an embedded Valkey in the data directory, unless the two URLs name others.
DATABASES = {"default": database_settings(os.environ.get("DATABASE_URL", "").strip(), DATA_DIR)}
LIGHTCONE_EMBEDDED_VALKEY = not env.text("REDIS_URL")
LIGHTCONE_VALKEY_BYTES = env.integer("VALKEY_BYTES", 2**30, minimum=2**26)
LIGHTCONE_REDIS_URL = env.text("REDIS_URL") or f"unix://{embedded_valkey_socket(DATA_DIR)}"
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [LIGHTCONE_REDIS_URL], "prefix": f"{LIGHTCONE_DEPLOYMENT}:default"},
    },
    "tokens": {
        "BACKEND": "chat.relay.token_layer.TokenLayer",
        "CONFIG": {"url": LIGHTCONE_REDIS_URL, "prefix": f"{LIGHTCONE_DEPLOYMENT}:tokens"},
    },
}

# Celery carries requests and control, never tokens and never results.
CELERY_BROKER_URL = broker_url(LIGHTCONE_REDIS_URL)
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": f"{LIGHTCONE_DEPLOYMENT}:celery:",
    "socket_connect_timeout": 3,
    "socket_timeout": 10,
    "health_check_interval": 15,
    "max_retries": 1,
}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
# A broker whose disk is full refuses commands; retry as for one that is down.
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "maintenance"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULE = {
    "logs-retention": {"task": "chat.logs_retention", "schedule": 24 * 3600, "options": {"queue": "maintenance"}},
    "audit-retention": {"task": "chat.audit_retention", "schedule": 24 * 3600, "options": {"queue": "maintenance"}},
    "alerts-retention": {"task": "chat.alerts_retention", "schedule": 24 * 3600, "options": {"queue": "maintenance"}},
    "chats-retention": {"task": "chat.chats_retention", "schedule": 24 * 3600, "options": {"queue": "maintenance"}},
    "answers-retention": {"task": "chat.answers_retention", "schedule": 24 * 3600, "options": {"queue": "maintenance"}},
    "files-retention": {"task": "chat.files_retention", "schedule": 3600, "options": {"queue": "maintenance"}},
}
CELERY_BEAT_SCHEDULE_FILENAME = str(DATA_DIR / "run" / "beat-schedule")
CELERY_TIMEZONE = "UTC"

INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "lightcone_site.console.ConsoleConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "servestatic",
    "lightcone_site.static_files.ServedFiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.usersessions",
    "rest_framework",
    "drf_spectacular_sidecar",
    "channels",
    "chat",
    "lightcone_site",
]

# For pages: console, playground, documentation. API routes bypass it (chat.api.middleware.ApiHandler).
MIDDLEWARE = [
    "chat.api.middleware.PageMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "chat.access.browsers.IdleSessionMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "lightcone_site.urls"
if env.text("ROLE") in WORKER_STEPS:
    # A worker serves no pages, which take 40 MiB; it needs the models alone.
    INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "chat"]
    MIDDLEWARE, ROOT_URLCONF = [], ""
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
                "chat.access.context.roles",
            ],
            "libraries": {"modules": "chat.playground.module_links", "live_figures": "chat.live.figures"},
        },
    }
]

# Sign-in and cookies. Cookies are secure behind TLS (LIGHTCONE_TLS=1). Django's defaults are strict: HttpOnly sessions,
# SameSite=Lax, no framing, no sniffing, referrers to the same origin only.
AUTHENTICATION_BACKENDS = ["chat.access.backend.PolicyBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "/sign-in"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = LOGIN_URL
LIGHTCONE_TLS = env.boolean("TLS")
LIGHTCONE_SESSION_IDLE_MINUTES = env.integer("SESSION_IDLE_MINUTES", 3 * 24 * 60, minimum=5, maximum=14 * 24 * 60)
SESSION_COOKIE_AGE = 14 * 24 * 3600
SESSION_COOKIE_NAME = "lightcone_session"
SESSION_COOKIE_SECURE = LIGHTCONE_TLS
CSRF_COOKIE_NAME = "lightcone_csrf"
CSRF_COOKIE_SECURE = LIGHTCONE_TLS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if LIGHTCONE_TLS else None

# Sign-in by django-allauth. Our counters of failures (chat.access.sign_in) take the place of its limits, which count in
# the cache of one process. Nobody signs up: people are invited, or come by the OpenID provider.
ACCOUNT_ADAPTER = "chat.access.allauth_adapters.AccountAdapter"
ACCOUNT_FORMS = {
    "login": "chat.access.sign_in_forms.SignInForm",
    "change_password": "chat.access.sign_in_forms.ChangePasswordForm",
    "reset_password": "chat.access.sign_in_forms.ResetPasswordForm",
}
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
ACCOUNT_RATE_LIMITS = False
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_SESSION_COOKIE_AGE = LIGHTCONE_SESSION_IDLE_MINUTES * 60
ACCOUNT_LOGOUT_REDIRECT_URL = LOGIN_URL
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_REAUTHENTICATION_METHODS = ["password", "mfa"]
ACCOUNT_REAUTHENTICATION_TIMEOUT = 15 * 60
MFA_ADAPTER = "chat.access.allauth_adapters.FactorAdapter"
MFA_FORMS = {
    "authenticate": "chat.access.sign_in_forms.CodeForm",
    "reauthenticate": "chat.access.sign_in_forms.ConfirmCodeForm",
    "activate_totp": "chat.access.sign_in_forms.ActivateCodeForm",
    "add_webauthn": "chat.access.sign_in_forms.AddPasskeyForm",
    "edit_webauthn": "chat.access.sign_in_forms.RenamePasskeyForm",
}
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_RATE_LIMITS = False
MFA_TOTP_ISSUER = "Lightcone"
MFA_TOTP_TOLERANCE = 1
SOCIALACCOUNT_ADAPTER = "chat.access.allauth_adapters.ProviderAdapter"
SOCIALACCOUNT_OPENID_CONNECT_URL_PREFIX = ""
LIGHTCONE_OIDC = oidc_settings()
SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": LIGHTCONE_OIDC.apps()}}

# Mail. Without LIGHTCONE_SMTP_HOST links are copied by hand.
LIGHTCONE_MAIL = mail_settings()
EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
EMAIL_HOST, EMAIL_PORT = LIGHTCONE_MAIL.host, LIGHTCONE_MAIL.port
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = LIGHTCONE_MAIL.user, LIGHTCONE_MAIL.password
EMAIL_USE_TLS, EMAIL_USE_SSL = LIGHTCONE_MAIL.security == "starttls", LIGHTCONE_MAIL.security == "tls"
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = SERVER_EMAIL = LIGHTCONE_MAIL.sender

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
USE_THOUSAND_SEPARATOR = True
FORMAT_MODULE_PATH = ["lightcone_site.formats"]
LANGUAGE_COOKIE_NAME = "lightcone_language"
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600
LANGUAGE_COOKIE_SAMESITE = "Lax"
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
SERVESTATIC_KEEP_ONLY_HASHED_FILES = True
FILE_UPLOAD_PERMISSIONS, FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o600, 0o700
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": DATA_DIR / "files"}},
    "staticfiles": {"BACKEND": "lightcone_site.static_files.HashedStaticFiles"},
}

LOGGING = logging_settings(env.text("LOG_LEVEL", "INFO").upper())

# Shown once at the start; they stop nothing.
LIGHTCONE_SETTINGS_READ = env.READ
LIGHTCONE_SETTINGS_REMARKS = env.settings_remarks(os.environ)
