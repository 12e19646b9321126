"""The routes about the server itself, described."""

from __future__ import annotations

from chat.api.openapi.describe import TEXT, Operation, obj

TAG = "health"
SCHEMAS = {"Status": obj(status=TEXT), "Version": obj(version=TEXT)}
OPERATIONS = (
    Operation(
        "GET /health/live", "health_live", "Alive. The process answers.", answer="Status", errors=(), needs_key=False
    ),
    Operation(
        "GET /health/ready",
        "health_ready",
        "Ready. A model is loaded.",
        answer="Status",
        errors=(503,),
        error="Status",
        needs_key=False,
    ),
    Operation("GET /version", "version", "Version. Which Lightcone answers.", answer="Version", errors=(401, 429, 500)),
)
