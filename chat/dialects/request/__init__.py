"""The one request schema and its checks; every dialect, and the playground, translates into it.

strict_json  bytes → object
cross_field  what fields forbid each other, on the raw object
schema       types and ranges (DRF serializers; order of the specification), pure CPU
messages     messages as the template sees them
build        the checked body → engine.api.GenerationRequest
"""
