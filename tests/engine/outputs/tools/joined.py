"""The result of a parser for text in any fragments: content, reasoning, and calls with joined arguments."""

from dataclasses import dataclass, field

from engine.api.request import Tool
from engine.outputs.pieces import CallArguments, CallEnd, CallStart, ContentText, ReasoningText
from engine.outputs.tools.registry import make_tool_parser

WEATHER = Tool(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "ratio": {"type": "number"},
            "is_metric": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "options": {"type": "object"},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "place": {"$ref": "#/$defs/Place"},
        },
        "$defs": {"Place": {"type": "object"}},
    },
)
TIME = Tool("get_time")
TOOLS = (WEATHER, TIME)


@dataclass
class Call:
    name: str
    arguments: str = ""
    is_complete: bool = True
    call_id: str = ""


@dataclass
class ParsedText:
    content: str = ""
    calls: list[Call] = field(default_factory=list)
    reasoning: str = ""


def join(pieces):
    """Join the pieces; check their order: arguments and ends belong to the open call."""
    result, open_call = ParsedText(), None
    for piece in pieces:
        match piece:
            case ContentText(text):
                assert text
                assert open_call is None
                result.content += text
            case ReasoningText(text):
                result.reasoning += text
            case CallStart(name, call_id):
                assert open_call is None
                open_call = Call(name, is_complete=False, call_id=call_id)
                result.calls.append(open_call)
            case CallArguments(text):
                assert text
                open_call.arguments += text
            case CallEnd():
                open_call.is_complete = True
                open_call = None
    return result


def parse(parser, pieces):
    result = [piece for text in pieces for piece in parser.feed(text)]
    return join(result + parser.flush())


def parse_with(name, *pieces):
    return parse(make_tool_parser(name, TOOLS), pieces)
