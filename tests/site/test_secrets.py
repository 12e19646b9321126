"""Secrets of an installation are made once and readable by its owner only."""

import stat
from concurrent.futures import ThreadPoolExecutor

from lightcone_site.secrets import installation_secret


def test_a_secret_is_made_once_and_private(tmp_path):
    first = installation_secret(tmp_path, "pepper")
    assert len(first) == 64
    assert installation_secret(tmp_path, "pepper") == first
    assert installation_secret(tmp_path, "other") != first
    assert stat.S_IMODE((tmp_path / "secrets" / "pepper").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700


def test_many_first_uses_at_once_agree(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: installation_secret(tmp_path, "pepper"), range(32)))
    assert len(made) == 1
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["pepper"], "no drafts are left"
