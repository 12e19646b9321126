"""A small OpenID provider for tests, over real HTTP on loopback: it confirms whoever it is told to."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from lightcone_site.sign_in import OidcSettings

CLIENT_ID, CLIENT_SECRET = "lightcone", "secret-of-the-client"


@dataclass
class Provider:
    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    """Who signs in there next."""
    refuses: bool = False
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    key: Any = field(default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048))

    def use(self, settings: Any, *, role: str = "") -> None:
        settings.LIGHTCONE_OIDC = OidcSettings(self.issuer, CLIENT_ID, CLIENT_SECRET, "Corp", role)

    def configuration(self) -> dict[str, Any]:
        pages = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/jwks",
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            **{f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in pages.items()},
        }

    def authorize(self, asked: dict[str, str]) -> str:
        """Return where the browser goes on."""
        if self.refuses:
            return f"{asked['redirect_uri']}?{urlencode({'error': 'access_denied', 'state': asked['state']})}"
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, sent: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Give a token for a code: once, to the client that knows the secret and the verifier."""
        asked = self.codes.pop(sent.get("code", ""), None)
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or sent.get("client_secret") != CLIENT_SECRET or asked.get("code_challenge") != challenge:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 60, **self.claims}
        if "nonce" in asked:
            claims["nonce"] = asked["nonce"]
        return 200, {
            "access_token": "access",
            "token_type": "Bearer",
            "id_token": jwt.encode(claims, self.key, "RS256", {"kid": "1"}),
        }


@contextmanager
def oidc_provider() -> Iterator[Provider]:
    provider = Provider()

    class Pages(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/.well-known/openid-configuration":
                self.say(200, provider.configuration())
            elif parts.path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize(first_of(parts.query)))
                self.end_headers()
            elif parts.path == "/userinfo":
                self.say(200, provider.claims)
            elif parts.path == "/jwks":
                public = jwt.algorithms.RSAAlgorithm.to_jwk(provider.key.public_key(), as_dict=True)
                self.say(200, {"keys": [public | {"kid": "1", "alg": "RS256", "use": "sig"}]})
            else:
                self.say(404, {})

        def do_POST(self) -> None:
            sent = first_of(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.say(*provider.token(sent))

        def say(self, status: int, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        provider.issuer = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield provider
        server.shutdown()
        thread.join()


def first_of(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}
