"""The doctor's checks of proxies and of loose file modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightcone_site.serve.diagnosis import check_data_directory, check_proxy


@pytest.mark.parametrize(
    ("tls", "origins", "proxies", "is_problem"),
    [
        (False, [], [], False),
        (True, [], [], True),
        (False, ["https://ai.example.com"], [], True),
        (True, ["https://ai.example.com"], ["10.0.0.1"], False),
    ],
)
def test_settings_that_imply_a_proxy_require_it_to_be_listed(
    settings: Any, tls: bool, origins: Any, proxies: Any, is_problem: bool
) -> None:
    settings.LIGHTCONE_TLS, settings.CSRF_TRUSTED_ORIGINS, settings.LIGHTCONE_TRUSTED_PROXIES = tls, origins, proxies
    (finding,) = check_proxy()
    assert finding.is_problem is is_problem
    assert not is_problem or "LIGHTCONE_TRUSTED_PROXIES" in finding.remedy


def test_a_data_directory_open_to_others_is_named(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    tmp_path.chmod(0o755)
    assert any(finding.is_problem and str(tmp_path) in finding.text for finding in check_data_directory())
    tmp_path.chmod(0o700)
    assert not any("open to group" in finding.text for finding in check_data_directory())
