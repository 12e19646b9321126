"""Write structural tags as grammars of llguidance.

llguidance cuts a text into lexemes, the longest first, so text that may be cut in two ways must be one lexeme. Regular
neighbours join into one expression. Free text joins with the constant that ends it into a lazy lexeme, which ends at
the first chance; hence free text must be last, or be followed by a constant. Runs in the killable child.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import llguidance

from engine.config import StructuredLimits
from engine.structured.backends.llguidance_grammar import json_options
from engine.structured.backends.vocabulary import Vocabulary
from engine.structured.grammar.expressions import ANY_TEXT, EMPTY, Either, Expression, Sequence, Text, in_sequence
from engine.structured.grammar.inline import inlined
from engine.structured.grammar.source import read_grammar
from engine.structured.refusal import refusal
from engine.structured.regex.reader import read_regex
from engine.structured.regex.rust import write_regex
from engine.structured.schema.gaps import must_stand, read_gaps
from engine.structured.schema.rewrite import rewrite_schema
from engine.structured.tags.source import Node
from engine.structured.tags.xml_parameters import xml_parameters

MAX_RULES = 10_000
RULE = "rule"
"""The type of an inner node: a rule that has been written already."""


@dataclasses.dataclass(frozen=True, slots=True)
class TagOptions:
    """The options of JSON within a tag, and whether constants may be control tokens, as those of the model's own call
    format are.
    """

    whitespace: str = ""
    closes_objects: bool = True
    has_control: bool = False


def tag_grammar(
    node: Node, vocabulary: Vocabulary, limits: StructuredLimits, param: str, options: TagOptions = TagOptions()
) -> str:  # noqa: B008
    """Return a grammar that admits exactly the texts of a checked node. Raises RequestError."""
    control = {vocabulary.tokens[token_id].decode("utf-8", "replace"): token_id for token_id in vocabulary.special_ids}
    control.pop("", None)
    writer = _Writer(limits, param, options, control if options.has_control else {})
    return llguidance.LLMatcher.grammar_from_lark(writer.document(node))


class _Writer:
    """A writer of rules. Each method returns an expression of Lark."""

    def __init__(self, limits: StructuredLimits, param: str, options: TagOptions, control: dict[str, int]) -> None:
        self._limits = limits
        self._param = param
        self._options = options
        self._gaps = read_gaps(options.whitespace, limits, param)
        self._control = control
        self._lines: list[str] = []

    def document(self, node: Node) -> str:
        body = self._sequence([node])
        return "\n".join([f"start: {body}", *self._lines])

    def _rule(self, body: str, attributes: str = "", name: str = "") -> str:
        """Write a rule with this body and return its name."""
        if len(self._lines) >= MAX_RULES:
            raise refusal(
                self._param, "the structural tag is too complex: its alternatives multiply; make free text rarer in it"
            )
        name = name or self._new_name()
        self._lines.append(f"{name}{attributes}: {body}")
        return name

    def _new_name(self) -> str:
        self._lines.append("")
        return f"r{len(self._lines)}"

    def _sequence(self, nodes: list[Node]) -> str:
        """Write all of these nodes, one after the other."""
        before: list[Expression] = []
        for index, node in enumerate(nodes):
            expression = self._regular(node)
            if expression is not None:
                before.append(expression)
                continue
            rest = nodes[index + 1 :]
            match node["type"]:
                case "sequence":
                    return self._joined(before, self._sequence([*node["elements"], *rest]))
                case "tag":
                    return self._joined(before, self._sequence([*_parts(node), *rest]))
                case "any_text":
                    return self._free_text(node.get("excludes", []), rest, before)
            return self._joined(before, self._irregular(node, rest))
        return self._joined(before, "")

    def _irregular(self, node: Node, rest: list[Node]) -> str:
        """Write a node at the beginning that is more than an expression, then the rest."""
        match node["type"]:
            case "or":
                return self._either([[element] for element in node["elements"]], rest)
            case "triggered_tags":
                return self._triggered(node, rest)
            case "tags_with_separator":
                return self._separated(node, rest)
            case "control":
                return f"<[{node['token_id']}]> {self._sequence(rest)}"
            case "rule":
                return f"{node['name']} {self._sequence(rest)}"
            case "qwen_xml_parameter":
                return self._sequence([self._xml(node, "qwen_xml"), *rest])
            case "json_schema" if node.get("style", "json") != "json":
                return self._sequence([self._xml(node, node["style"]), *rest])
        schema = node.get("rewritten", None)
        if schema is None:
            schema = rewrite_schema(
                node["json_schema"], self._limits, self._param, closes_objects=self._options.closes_objects
            )
        return f"{self._json(schema)} {self._sequence(rest)}"

    def _either(self, alternatives: list[list[Node]], rest: list[Node]) -> str:
        """Write one of several sequences, then the rest: once, unless free text of an alternative has to know what
        follows.
        """
        after = (
            [_rule_node(self._rule(self._sequence(rest) or '""'))]
            if rest and not any(map(_is_open, alternatives))
            else rest
        )
        return "(" + " | ".join(self._sequence([*alternative, *after]) or '""' for alternative in alternatives) + ")"

    def _free_text(self, excludes: list[str], rest: list[Node], before: list[Expression]) -> str:
        """Write any text up to what must come next."""
        if not rest:
            text = in_sequence([*before, ANY_TEXT])
            return self._terminal(text, excludes)
        heads = self._heads(rest)
        if heads is None:
            message = "free text in a structural tag must be last, or be followed by a constant text that ends it"
            raise refusal(self._param, message)
        return "(" + " | ".join(self._until(head, following, excludes, before) for head, following in heads) + ")"

    def _until(self, head: str, rest: list[Node], excludes: list[str], before: list[Expression]) -> str:
        """Write free text up to the first occurrence of `head`, then the rest."""
        after = self._sequence(rest)
        if head in self._control:
            return f"{self._terminal(in_sequence([*before, ANY_TEXT]), excludes)} <[{self._control[head]}]> {after}"
        if not excludes:
            return f"{self._rule(self._regex(in_sequence([*before, ANY_TEXT, Text(head)])), '[lazy]')} {after}"
        text = self._terminal(in_sequence([*before, ANY_TEXT]), excludes)
        return f"{self._rule(f'{text} {self._regex(Text(head))}', '[lazy]')} {after}"

    def _heads(self, nodes: list[Node]) -> list[tuple[str, list[Node]]] | None:
        """Return the constants with which these nodes may begin, each with what follows it; None if they may begin
        otherwise.
        """
        if not nodes:
            return None
        first, rest = nodes[0], nodes[1:]
        match first["type"]:
            case "const_string":
                head, tail = self._split_control(first["value"])
                return [(head, [*tail, *rest])]
            case "sequence" | "tag":
                return self._heads([*(first["elements"] if first["type"] == "sequence" else _parts(first)), *rest])
            case "or":
                found = [self._heads([element, *rest]) for element in first["elements"]]
                return (
                    None
                    if any(heads is None for heads in found)
                    else [head for heads in found if heads for head in heads]
                )
        return None

    def _triggered(self, node: Node, rest: list[Node]) -> str:
        """Write free text in which each trigger begins one of its tags."""
        excludes = node.get("excludes", [])
        loop = self._new_name()
        once = node.get("stop_after_first", False)
        after_one = self._rule(self._sequence(rest) or '""') if once else loop
        tags = [self._triggered_tags(trigger, node["tags"], excludes, after_one) for trigger in node["triggers"]]
        tail = self._free_text(excludes, rest, [])
        self._rule(" | ".join([*([] if once else tags), tail]), name=loop)
        first = [*tags, *([] if node.get("at_least_one", False) else [tail])]
        return "(" + " | ".join(first) + ")"

    def _triggered_tags(self, trigger: str, tags: list[Node], excludes: list[str], after: str) -> str:
        head, tail = self._split_control(trigger)
        bodies = []
        for tag in tags:
            if tag["begin"].startswith(trigger):
                begin = [*tail, *self._constants(tag["begin"][len(trigger) :])]
                bodies.append([*begin, *_parts(tag)[len(_begin(tag)) :]])
        return self._until(
            head,
            [{"type": "or", "elements": [_sequence_node(body) for body in bodies]}, _rule_node(after)],
            excludes,
            [],
        )

    def _separated(self, node: Node, rest: list[Node]) -> str:
        """Write tags with a constant between any two."""
        one = {"type": "or", "elements": node["tags"]}
        after = self._rule(self._sequence(rest) or '""')
        more = self._new_name()
        first = self._sequence([one, _rule_node(more)])
        if node.get("stop_after_first", False):
            self._rule(after, name=more)
        else:
            separator = self._constants(node["separator"])
            self._rule(f"{after} | {self._sequence([*separator, _rule_node(self._rule(first))])}", name=more)
        return f"({first})" if node.get("at_least_one", False) else f"({first} | {after})"

    def _xml(self, node: Node, style: str) -> Node:
        schema = rewrite_schema(node["json_schema"], self._limits, self._param, closes_objects=True)
        return _sequence_node(xml_parameters(schema, style, self._param))

    # Expressions

    def _regular(self, node: Node) -> Expression | None:
        """Return the expression of a node, or None if it is irregular."""
        match node["type"]:
            case "const_string":
                return None if self._holds_control(node["value"]) else Text(node["value"])
            case "regex":
                return read_regex(node["pattern"], self._limits, self._param)
            case "grammar":
                expression = inlined(read_grammar(node["grammar"], self._limits, self._param))
                if expression is None:
                    raise refusal(
                        self._param,
                        "a grammar within a structural tag must not be recursive, nor very long; "
                        "describe the text by other nodes",
                    )
                return expression
            case "sequence" | "or":
                parts = [self._regular(element) for element in node["elements"]]
                known = [part for part in parts if part is not None]
                if len(known) < len(parts):
                    return None
                return in_sequence(known) if node["type"] == "sequence" else Either(tuple(known))
            case "tag":
                return self._regular(_sequence_node(_parts(node)))
        return None

    def _joined(self, before: list[Expression], after: str) -> str:
        """Write expressions as one terminal, then what follows."""
        expression = in_sequence(before)
        return f"{self._regex(expression)} {after}".strip() if expression not in (EMPTY, Sequence()) else after

    def _terminal(self, expression: Expression, excludes: list[str]) -> str:
        """Return the name of a terminal whose texts hold none of `excludes`."""
        body = self._regex(expression)
        if excludes:
            held = in_sequence([ANY_TEXT, Either(tuple(map(Text, excludes))), ANY_TEXT])
            body += f" & ~({self._regex(held)})"
        name = f"T{len(self._lines)}"
        return self._rule(body, name=name)

    def _regex(self, expression: Expression) -> str:
        return f"/{write_regex(expression)}/"

    def _json(self, schema: Any) -> str:
        if must_stand(self._gaps):
            message = (
                "a whitespace_pattern must be able to match nothing where JSON stands beside other text; "
                "write [ ]? for [ ]"
            )
            raise refusal(self._param, message)
        if isinstance(schema, bool):
            schema = {"anyOf": [schema]}
        return "%json " + json.dumps(schema | {"x-guidance": json_options(self._gaps, schema)})

    # Control tokens

    def _holds_control(self, text: str) -> bool:
        return any(control in text for control in self._control)

    def _constants(self, text: str) -> list[Node]:
        """Return a constant as nodes: text, and control tokens where the text names them."""
        nodes: list[Node] = []
        while text:
            head, tail = self._first_control(text)
            if head:
                nodes.append({"type": "const_string", "value": head})
            if not tail:
                break
            name = next(control for control in sorted(self._control, key=len, reverse=True) if tail.startswith(control))
            nodes.append({"type": "control", "token_id": self._control[name]})
            text = tail[len(name) :]
        return nodes

    def _first_control(self, text: str) -> tuple[str, str]:
        places = [text.find(control) for control in self._control if control in text]
        return (text[: min(places)], text[min(places) :]) if places else (text, "")

    def _split_control(self, text: str) -> tuple[str, list[Node]]:
        """Return the first constant of a text, all text or one control token, and the others."""
        head, tail = self._first_control(text)
        if head or not tail:
            return head, self._constants(tail)
        name = next(control for control in sorted(self._control, key=len, reverse=True) if tail.startswith(control))
        return name, self._constants(tail[len(name) :])


def _parts(tag: Node) -> list[Node]:
    """Return begin, content and end of a tag."""
    ends = [tag["end"]] if isinstance(tag["end"], str) else tag["end"]
    nodes: list[Node] = [{"type": "const_string", "value": end} for end in ends if end]
    end = nodes if len(nodes) < 2 else [{"type": "or", "elements": nodes}]
    return [*_begin(tag), tag["content"], *end]


def _begin(tag: Node) -> list[Node]:
    return [{"type": "const_string", "value": tag["begin"]}] if tag["begin"] else []


def _sequence_node(nodes: list[Node]) -> Node:
    return {"type": "sequence", "elements": nodes}


def _rule_node(name: str) -> Node:
    return {"type": RULE, "name": name}


def _is_open(nodes: list[Any]) -> bool:
    """Return True if a sequence ends in free text, which has to know what follows."""
    last = nodes[-1] if nodes else {"type": ""}
    match last["type"]:
        case "any_text" | "triggered_tags":
            return True
        case "or" | "sequence":
            elements = last["elements"]
            return any(_is_open([element]) for element in (elements if last["type"] == "or" else elements[-1:]))
        case "tag":
            return last["end"] in ("", [""]) and _is_open([last["content"]])
    return False
