"""Sixty requests that every dialect answers alike.

They have the form of the Lightcone request; test_equivalence.py converts them. All are greedy or seeded. `DEFAULTS`
apply to each; None leaves a field out.
"""

from __future__ import annotations

from typing import Any

SEA = [{"role": "user", "content": "Tell me about the sea."}]
COUNTING = [
    {"role": role, "content": text}
    for number in ("1", "2")
    for role, text in (("user", f"Say {number}."), ("assistant", f"{number}."))
] + [{"role": "user", "content": "Say 3."}]
"""Ends by itself: "3."."""
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather of a city.", "parameters": CITY},
}
NAMED = {"type": "function", "function": {"name": "weather"}}
CALL = {"name": "weather", "arguments": '{"city":"Rome"}'}
HOW = {"role": "user", "content": "How is the weather in Rome?"}
CALLED = [
    HOW,
    {"role": "assistant", "content": None, "tool_calls": [{"id": "call00001", "type": "function", "function": CALL}]},
    {"role": "tool", "tool_call_id": "call00001", "content": "sunny"},
]
CALLED_BEFORE_TOOLS = [
    HOW,
    {"role": "assistant", "content": None, "function_call": CALL},
    {"role": "function", "name": "weather", "content": "sunny"},
]
PARTS = [{"type": "text", "text": "Tell me"}, {"type": "text", "text": "about the sea."}]
COLOUR = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
DRAWN = {"temperature": 1, "seed": 7}
DEFAULTS = {"messages": SEA, "temperature": 0, "max_tokens": 8}

REQUESTS: dict[str, dict[str, Any]] = {
    # Messages.
    "a question": {},
    "a system message": {"messages": [{"role": "system", "content": "You are a pirate."}, *SEA]},
    "a developer message": {"messages": [{"role": "developer", "content": "Be brief."}, *SEA]},
    "several turns": {"messages": COUNTING},
    "text in parts": {"messages": [{"role": "user", "content": PARTS}]},
    "many scripts": {"messages": [{"role": "user", "content": "Répète: 你好, мир, 🌊\u2028\x85 \u202e!"}]},
    "names": {"messages": [{"role": "user", "name": "ann", "content": "Who am I?"}]},
    "results of a call": {"messages": CALLED, "tools": [WEATHER], "tool_choice": "none"},
    "an old call in the history": {"messages": CALLED_BEFORE_TOOLS},
    # Ends of answers.
    "the limit under its newer name": {"max_tokens": None, "max_completion_tokens": 5},
    "both names of the limit": {"max_tokens": 3, "max_completion_tokens": 5},
    "one token": {"max_tokens": 1},
    "a stop string": {"stop": " of"},
    "several stop strings": {"stop": ["\n", ".", " is", "xyzzy"]},
    "a stop string that is kept": {"stop": [" is", " a"], "include_stop_str_in_output": True},
    "a stop token": {"stop_token_ids": [28, 30, 198, 253, 260]},
    "no end": {"messages": COUNTING, "ignore_eos": True},
    "a least number of tokens": {"messages": COUNTING, "min_tokens": 6},
    "repetition is noticed": {
        "messages": COUNTING,
        "ignore_eos": True,
        "repetition_detection": {"max_pattern_size": 3, "min_count": 2},
    },
    # Sampling.
    "a ban": {"logit_bias": {"504": -100, "378": -100}},
    "a wish": {"logit_bias": {"28": 8.5}},
    "only these tokens": {"allowed_token_ids": [28, 30, 198, 253, 260, 504, 378]},
    "not these words": {"bad_words": ["The", "sea", " ocean"]},
    "a frequency penalty": {"frequency_penalty": 1.5},
    "a presence penalty": {"presence_penalty": -1.5},
    "a repetition penalty": {"repetition_penalty": 1.3},
    "a draw": {**DRAWN},
    "a draw of few": {**DRAWN, "top_k": 5, "top_p": 0.8},
    "a draw of the likely": {**DRAWN, "min_p": 0.2, "seed": 11},
    "several draws": {**DRAWN, "n": 3},
    "beams": {"use_beam_search": True, "n": 2},
    # Reports.
    "log-probabilities": {"logprobs": True},
    "alternatives": {"logprobs": True, "top_logprobs": 3},
    "log-probabilities of named tokens": {"logprobs": True, "logprob_token_ids": [28, 504]},
    "log-probabilities of several draws": {**DRAWN, "n": 2, "logprobs": True, "top_logprobs": 1},
    "log-probabilities of the prompt": {"prompt_logprobs": 1, "max_tokens": 2},
    "ids": {"return_token_ids": True},
    "special tokens": {"messages": COUNTING, "skip_special_tokens": False, "ignore_eos": True},
    "labels": {"user": "ann", "metadata": {"team": "sea"}, "store": False},
    "nulls": {"seed": None, "stop": None, "tools": None, "response_format": None, "logit_bias": None},
    # Streams.
    "a stream": {"stream": True},
    "a stream with usage": {"stream": True, "stream_options": {"include_usage": True}},
    "a stream of several draws": {**DRAWN, "n": 2, "stream": True, "stream_options": {"include_usage": True}},
    "a stream with log-probabilities": {"stream": True, "logprobs": True, "top_logprobs": 2},
    "a stream that stops": {"stream": True, "stop": [" is", "."], "stream_options": {"include_usage": True}},
    "a stream of a call": {"stream": True, "tools": [WEATHER], "tool_choice": NAMED, "max_tokens": 16},
    # Tools.
    "tools that may be called": {"tools": [WEATHER]},
    "a call": {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 24},
    "a named call": {"tools": [WEATHER], "tool_choice": NAMED, "max_tokens": 16},
    "a call that is cut": {"tools": [WEATHER], "tool_choice": NAMED, "max_tokens": 3},
    "an old function": {"functions": [WEATHER["function"]], "function_call": {"name": "weather"}, "max_tokens": 16},
    # Constraints.
    "any JSON object": {"response_format": {"type": "json_object"}},
    "a schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": COLOUR, "strict": True}},
        "max_tokens": 16,
    },
    "a guided schema": {"structured_outputs": {"json": COLOUR}, "max_tokens": 16},
    "a guided schema with gaps": {
        "structured_outputs": {"json": COLOUR, "whitespace_pattern": "[ ]"},
        "max_tokens": 16,
    },
    "a guided expression": {"structured_outputs": {"regex": "(Red|Blue), [0-9]{2}"}},
    "a guided choice": {"structured_outputs": {"choice": ["the Baltic", "the Pacific"]}},
    "a guided grammar": {"structured_outputs": {"grammar": 'root ::= "sea" | "see"'}},
    # Continuing and copying.
    "a last message goes on": {
        "messages": [*SEA, {"role": "assistant", "content": "The sea is"}],
        "continue_final_message": True,
        "add_generation_prompt": False,
        "echo": True,
    },
    "a prediction": {
        "prediction": {"type": "content", "content": "The sea is a vast and mysterious"},
        "max_tokens": 12,
    },
}
