"""Run in a tzafon client's own environment: drive the served Lightcone and print what was seen as JSON."""

import json
import os
import sys

import tzafon


def main() -> None:
    url, model = sys.argv[1], sys.argv[2]
    key = os.environ["TZAFON_API_KEY"]
    messages = [{"role": "user", "content": "Say hello in one short sentence."}]
    client = tzafon.Lightcone(api_key=key, base_url=url, max_retries=0)
    seen = {"version": tzafon.__version__}
    # A cold prompt goes through other kernels than a cached one; the two texts below are compared.
    client.chat.create_completion(model=model, messages=messages, max_tokens=8, temperature=0)
    plain = client.chat.create_completion(model=model, messages=messages, max_tokens=8, temperature=0)
    seen["text"] = plain["choices"][0]["message"]["content"]
    raw = client.chat.create_completion(model=model, messages=messages, max_tokens=8, temperature=0, stream=True)
    data = [line[6:] for line in raw.splitlines() if line.startswith("data: ")]
    seen["last"] = data[-1]
    seen["streamed"] = "".join(json.loads(frame)["choices"][0]["delta"].get("content") or "" for frame in data[:-1])
    with client.chat.with_streaming_response.create_completion(
        model=model, messages=messages, max_tokens=8, temperature=0, stream=True
    ) as response:
        seen["lines"] = sum(line.startswith("data: ") for line in response.iter_lines())
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "now", "parameters": schema}}]
    choice = {"type": "function", "function": {"name": "now"}}
    called = client.chat.create_completion(model=model, messages=messages, tools=tools, tool_choice=choice, max_tokens=8)
    seen["call"] = called["choices"][0]["message"]["tool_calls"][0]["function"]
    formed = client.chat.create_completion(
        model=model, messages=messages, max_tokens=8, extra_body={"structured_outputs": {"choice": ["tea", "coffee"]}}
    )
    seen["formed"] = formed["choices"][0]["message"]["content"]
    seen["models"] = [entry["id"] for entry in client.models.list()["data"]]
    try:
        client.chat.create_completion(model=model, messages=messages, temperature=9)
    except tzafon.BadRequestError as error:
        seen["error"] = error.body
    try:
        tzafon.Lightcone(api_key="bad", base_url=url, max_retries=0).models.list()
    except tzafon.AuthenticationError as error:
        seen["status"] = error.status_code
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
