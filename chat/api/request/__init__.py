"""The one request schema and its checks; every dialect, and the playground, translates into it.

strict_json  bytes → object
cross_field  what fields forbid each other, on the raw object
schema       types and ranges of all fields (DRF serializers; order of the specification), pure CPU
             fields: the coercions · objects, tools, constraints, whitespace: fields with rules of their own
gates        what the key may ask for, and its place in the queue
messages     messages as the template sees them
build        the checked body → engine.api.GenerationRequest
refusals     what the engine refuses, in the words of the request
"""
