"""Settings from the environment: documented names, the two URLs, and clear errors."""

import errno
import os
import re
import runpy
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from lightcone_site import env
from lightcone_site.databases import MAX_SOCKET_PATH_BYTES, broker_url, database_settings, embedded_valkey_socket
from lightcone_site.limits import http_limits_read

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
LITERAL = re.compile(r"[\"'](LIGHTCONE_[A-Z][A-Z_]*)[\"']")


def names_in_code() -> set[str]:
    """Return names asked for through env.py (the settings are loaded here) and names in quotes anywhere else in the
    code.
    """
    sources = [
        path.read_text() for package in ("chat", "engine", "lightcone_site") for path in (ROOT / package).rglob("*.py")
    ]
    return set(env.READ) | {name for source in sources for name in LITERAL.findall(source)}


def test_every_setting_is_documented_and_no_other():
    documented = set(re.findall(r"`(LIGHTCONE_[A-Z][A-Z_]*)`", OPERATIONS))
    assert documented - names_in_code() == set(), "documented, but nothing reads it"
    assert names_in_code() - documented == set(), "read, but not in docs/operations.md"


def test_sqlite_is_the_default_with_a_write_ahead_log_and_immediate_transactions(tmp_path):
    settings = database_settings("", tmp_path)
    assert settings["NAME"] == tmp_path / "lightcone.sqlite3"
    assert settings["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in settings["OPTIONS"]["init_command"]
    assert settings["CONN_MAX_AGE"] == 0


def test_a_postgres_url_is_read_with_its_escapes_and_options(tmp_path):
    settings = database_settings("postgres://us%40er:p%2Fw@db.example:5433/light?sslmode=require", tmp_path)
    assert {key: settings[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT")} == {
        "NAME": "light",
        "USER": "us@er",
        "PASSWORD": "p/w",  # pragma: allowlist secret
        "HOST": "db.example",
        "PORT": "5433",
    }
    assert settings["OPTIONS"]["sslmode"] == "require"
    assert settings["OPTIONS"]["pool"]["max_size"] == 16
    assert settings["CONN_HEALTH_CHECKS"], "or each connection that a restarted server has closed costs a request"


def test_a_postgres_socket_folder_may_stand_in_the_query(tmp_path):
    settings = database_settings("postgresql:///light?host=/run/postgresql", tmp_path)
    assert settings["HOST"] == "/run/postgresql"
    assert "host" not in settings["OPTIONS"]


@pytest.mark.parametrize("url", ["mysql://host/name", "light", "postgres://host", "postgres://host:port/name"])
def test_a_database_url_that_cannot_be_used_is_refused_by_name(url, tmp_path):
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL"):
        database_settings(url, tmp_path)


def test_the_valkey_socket_lies_in_the_data_directory_where_its_path_fits(tmp_path):
    assert embedded_valkey_socket(Path("/srv/data")) == Path("/srv/data/run/valkey.sock")
    long = embedded_valkey_socket(tmp_path / ("x" * 120))
    assert len(str(long).encode()) <= MAX_SOCKET_PATH_BYTES
    assert long == embedded_valkey_socket(tmp_path / ("x" * 120)), "the same for every process"
    assert long != embedded_valkey_socket(tmp_path / ("y" * 120))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("unix:///a/b.sock", "redis+socket:///a/b.sock"),
        ("redis://h:1/2", "redis://h:1/2"),
        ("rediss://h", "rediss://h"),
    ],
)
def test_celery_gets_the_url_of_the_same_valkey(url, expected):
    assert broker_url(url) == expected


@pytest.mark.parametrize(
    ("device", "asked", "is_on"), [("cpu", "", True), ("cuda", "", False), ("cuda", "1", True), ("cpu", "0", False)]
)
def test_prompt_lookup_is_on_by_default_only_on_cpus(device, asked, is_on, monkeypatch, tmp_path):
    """On CUDA costs are a guess, and steps with drafts cannot use captured graphs."""
    for name, value in {"DATA_DIR": str(tmp_path), "DEVICE": device, "PROMPT_LOOKUP": asked}.items():
        monkeypatch.setenv(f"LIGHTCONE_{name}", value)
    assert runpy.run_path(str(ROOT / "lightcone_site" / "settings.py"))["LIGHTCONE_PROMPT_LOOKUP"] is is_on


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("KV_SPILL_BYTES", "4GiB", "LIGHTCONE_KV_SPILL_BYTES must be a whole number, got '4GiB'"),
        ("KV_SPILL_BYTES", "-1", r"LIGHTCONE_KV_SPILL_BYTES must be between 0 and \d+, got -1"),
        (
            "KV_SPILL_FOLDER",
            __file__,
            "LIGHTCONE_KV_SPILL_FOLDER must be a folder that this user can write to; .*a file",
        ),
    ],
)
def test_a_spill_file_that_cannot_be_meant_is_refused(name, raw, message, monkeypatch, tmp_path):
    monkeypatch.setenv("LIGHTCONE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv(f"LIGHTCONE_{name}", raw)
    with pytest.raises(ImproperlyConfigured, match=message):
        runpy.run_path(str(ROOT / "lightcone_site" / "settings.py"))


def test_a_missing_folder_is_created(monkeypatch, tmp_path):
    monkeypatch.setenv("LIGHTCONE_DATA_DIR", str(tmp_path / "a" / "b"))
    assert env.folder("DATA_DIR", tmp_path) == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()


def test_a_folder_that_cannot_be_written_to_is_named_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("LIGHTCONE_DATA_DIR", str(tmp_path))

    def refuse(**_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(
        ImproperlyConfigured, match=f"LIGHTCONE_DATA_DIR must be a folder .* {tmp_path} .*: Read-only file system"
    ):
        env.folder("DATA_DIR", tmp_path)


@pytest.mark.parametrize(
    "program", [["manage.py", "serve"], ["-m", "lightcone_site.worker"], ["-m", "lightcone_site.web"]]
)
def test_a_data_directory_that_is_a_file_gives_one_sentence_and_exit_code_2(program, tmp_path):
    """It gave a traceback of twenty lines."""
    (tmp_path / "data").write_text("")
    names = {"LIGHTCONE_DATA_DIR": str(tmp_path / "data"), "LIGHTCONE_ROLE": "maintenance"}
    names["DJANGO_SETTINGS_MODULE"] = "lightcone_site.settings"
    result = subprocess.run(
        [sys.executable, *program], capture_output=True, text=True, env=os.environ | names, cwd=ROOT, check=False
    )
    assert result.returncode == 2
    expected = (
        f"LIGHTCONE_DATA_DIR must be a folder that this user can write to; {tmp_path / 'data'} cannot be used: "
        "it is a file"
    )
    assert result.stderr.strip() == f"Lightcone cannot start: {expected}"


def test_a_number_out_of_range_names_the_variable_and_its_limits(monkeypatch):
    monkeypatch.setenv("LIGHTCONE_PORT", "70000")
    with pytest.raises(ImproperlyConfigured, match="LIGHTCONE_PORT must be between 1 and 65535, got 70000"):
        env.integer("PORT", 8000, minimum=1, maximum=65535)


@pytest.mark.parametrize("raw", ["maybe", "2", "-"])
def test_a_switch_accepts_yes_or_no_only(monkeypatch, raw):
    monkeypatch.setenv("LIGHTCONE_TLS", raw)
    with pytest.raises(ImproperlyConfigured, match="LIGHTCONE_TLS must be 1 or 0"):
        env.boolean("TLS")


@pytest.mark.parametrize("raw", ["x", "-1", "1001", "NaN", "Infinity"])
def test_an_exact_number_out_of_range_names_the_variable(monkeypatch, raw):
    monkeypatch.setenv("LIGHTCONE_BATCH_PRICE_FACTOR", raw)
    with pytest.raises(ImproperlyConfigured, match="LIGHTCONE_BATCH_PRICE_FACTOR must be"):
        env.decimal("BATCH_PRICE_FACTOR", "0.5", maximum=1000)


def test_an_exact_number_is_read_exactly(monkeypatch):
    monkeypatch.setenv("LIGHTCONE_BATCH_PRICE_FACTOR", "0.1")
    assert env.decimal("BATCH_PRICE_FACTOR", "0.5", maximum=1000) == Decimal("0.1")


def test_a_projector_is_named_without_its_folder(monkeypatch):
    monkeypatch.setenv("LIGHTCONE_MMPROJ", "mmproj-F16.gguf")
    assert env.file_name("MMPROJ") == "mmproj-F16.gguf"
    monkeypatch.setenv("LIGHTCONE_MMPROJ", "/models/mmproj-F16.gguf")
    with pytest.raises(ImproperlyConfigured, match="LIGHTCONE_MMPROJ must be the name of a file, without its folder"):
        env.file_name("MMPROJ")


@pytest.mark.parametrize("raw", ["proxy", "10.0.0.0/33", "10.0.0.1, nginx", "10.0.0.1:80"])
def test_a_proxy_that_is_no_address_is_named(monkeypatch, raw):
    monkeypatch.setenv("LIGHTCONE_TRUSTED_PROXIES", raw)
    with pytest.raises(ImproperlyConfigured, match="LIGHTCONE_TRUSTED_PROXIES must list addresses or networks"):
        env.networks("TRUSTED_PROXIES")


@pytest.mark.parametrize(
    "raw", ["example.com", "https://a.example/", "https://A.example", "https://a.example https://b.example", "https://"]
)
def test_an_invalid_origin_is_named(monkeypatch, raw):
    monkeypatch.setenv("LIGHTCONE_CORS_ALLOWED_ORIGINS", raw)
    with pytest.raises(ImproperlyConfigured, match="LIGHTCONE_CORS_ALLOWED_ORIGINS must list origins"):
        env.origins("CORS_ALLOWED_ORIGINS")


def test_lists_of_networks_and_origins_are_kept_as_written(monkeypatch):
    monkeypatch.setenv("LIGHTCONE_TRUSTED_PROXIES", "10.0.0.1, 10.1.2.3/8,::1")
    assert env.networks("TRUSTED_PROXIES") == ["10.0.0.1", "10.1.2.3/8", "::1"]
    monkeypatch.setenv(
        "LIGHTCONE_CORS_ALLOWED_ORIGINS",
        "*,http://localhost:3000,https://xn--bcher-kva.example,chrome-extension://abc,null",
    )
    assert len(env.origins("CORS_ALLOWED_ORIGINS")) == 5
    monkeypatch.delenv("LIGHTCONE_CORS_ALLOWED_ORIGINS")
    assert env.origins("CORS_ALLOWED_ORIGINS", ("*",)) == ["*"]


def test_an_empty_value_means_the_default(monkeypatch):
    monkeypatch.setenv("LIGHTCONE_PORT", "  ")
    assert env.integer("PORT", 8000) == 8000


def test_every_documented_setting_is_known():
    """Unknown settings are reported by the names that the code reads."""
    documented = re.findall(r"`(LIGHTCONE_[A-Z][A-Z_]*)`", OPERATIONS)
    assert env.settings_remarks(documented) == ""


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("LIGHTCONE_MAX_MODEL_LENGTH", "LIGHTCONE_MAX_MODEL_LENGTH (did you mean LIGHTCONE_MAX_MODEL_LEN?)"),
        ("LIGHTCONE_PROT", "LIGHTCONE_PROT (did you mean LIGHTCONE_PORT?)"),
        ("LIGHTCONE_XYZZY", "LIGHTCONE_XYZZY; docs"),
    ],
)
def test_a_misspelled_setting_gets_a_suggestion(name, suggested):
    """`LIGHTCONE_CONTEXT=2048` was silently ignored."""
    assert suggested in env.settings_remarks([name, "LIGHTCONE_PORT", "PATH", "LIGHTCONE_TEST_EXAMPLES"])


def test_many_unknown_settings_are_one_bounded_line():
    line = env.settings_remarks(f"LIGHTCONE_Q{number}" for number in range(100))
    assert "95 more" in line
    assert "\n" not in line
    assert len(line) < 600


def test_all_bodies_together_have_room_for_two_of_the_largest(monkeypatch):
    """One project may use half of the budget, which must fit the largest allowed body."""
    monkeypatch.setenv("LIGHTCONE_MAX_UPLOAD_BYTES", str(2**30))
    assert http_limits_read().max_bodies_bytes > 2**31
    monkeypatch.setenv("LIGHTCONE_MAX_BODIES_BYTES", str(2**30))
    with pytest.raises(ImproperlyConfigured, match="LIGHTCONE_MAX_BODIES_BYTES must be at least"):
        http_limits_read()


@pytest.mark.parametrize(("name", "old_name"), env.RENAMED.items())
def test_an_old_setting_name_works_and_names_its_new_one(monkeypatch, name, old_name):
    monkeypatch.setenv(f"LIGHTCONE_{old_name}", "12")
    assert env.integer(name, 3) == 12
    remark = env.settings_remarks([f"LIGHTCONE_{old_name}", "LIGHTCONE_PORT"])
    assert remark == f"LIGHTCONE_{old_name} is now called LIGHTCONE_{name}; the old name works until the next release"


def test_an_old_and_a_new_name_with_different_values_are_refused(monkeypatch):
    monkeypatch.setenv("LIGHTCONE_STEP_TOKENS", "12")
    monkeypatch.setenv("LIGHTCONE_MAX_NUM_BATCHED_TOKENS", "12")
    assert env.integer("MAX_NUM_BATCHED_TOKENS", 0) == 12
    monkeypatch.setenv("LIGHTCONE_MAX_NUM_BATCHED_TOKENS", "13")
    with pytest.raises(
        ImproperlyConfigured, match="MAX_NUM_BATCHED_TOKENS is '13' and its old name LIGHTCONE_STEP_TOKENS"
    ):
        env.integer("MAX_NUM_BATCHED_TOKENS", 0)


@pytest.mark.parametrize(
    "raw", ["*.example.com", "https://files.example.com", "a b", "files.example.com/", "u@h", "h:0"]
)
def test_a_host_of_media_that_is_none_is_named(monkeypatch, raw):
    monkeypatch.setenv("LIGHTCONE_MEDIA_DOMAINS", f"files.example.com,{raw}")
    with pytest.raises(ImproperlyConfigured, match=re.escape(repr(raw))):
        env.hosts("MEDIA_DOMAINS")


def test_hosts_of_media_are_read_in_small_letters(monkeypatch):
    monkeypatch.setenv("LIGHTCONE_MEDIA_DOMAINS", "Files.Example.com, [2606:4700::1]:8443,127.0.0.1:80, *")
    assert env.hosts("MEDIA_DOMAINS") == ["files.example.com", "[2606:4700::1]:8443", "127.0.0.1:80", "*"]
