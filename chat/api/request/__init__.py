"""The one request schema and its checks; every dialect, and the playground, translates into it.

strict_json  bytes → object
cross_field  rules between fields, on the raw object
schema       types and ranges of all fields (DRF serializers; order of the specification), pure CPU
             fields: the coercions · objects, tools, constraints: fields with rules of their own
parse        a body → ParsedRequest (parsed), with rules between coerced values
messages     messages as the template sees them (message_parts: their content and calls)
build        what the key may ask for, its place in the queue; ParsedRequest → engine.api.GenerationRequest
"""
