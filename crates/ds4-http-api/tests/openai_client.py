"""Drives a running server with the official `openai` Python client.

    pip install openai
    python openai_client.py http://127.0.0.1:8080/v1 [--api-key KEY] [--model demo]

The checks hold for the demo model and for `examples/fake_server.rs`. Each prints a line; the exit code is 1 if one
fails. With --api-key, a wrong key is tried too.
"""

import argparse
import asyncio
import json
import sys
import time
import traceback
import urllib.request

import openai

CHECKS = []
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city"}},
            "required": ["city"],
        },
    },
}
PING = [{"role": "user", "content": "ping"}]
# What the chat template makes of a story request without thinking: a raw prompt that the model goes on from.
STORY = (
    "<|im_start|>user\nWrite a short story about a lighthouse.<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
NO_THINKING = {"enable_thinking": False}


def check(function):
    CHECKS.append(function)
    return function


def chat(client, **parameters):
    parameters = {"messages": PING, "temperature": 0, "max_tokens": 200, **parameters}
    return client.chat.completions.create(model=client.served_model, **parameters)


def raises(kind, call, code=None, param=None):
    try:
        call()
    except kind as error:
        assert type(error) is kind, type(error)
        assert code is None or error.code == code, error.code
        assert param is None or error.param == param, error.param
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


@check
def models_are_listed_and_retrieved(client):
    models = client.models.list().data
    assert [model.id for model in models] == [client.served_model], models
    assert client.models.retrieve(client.served_model).object == "model"
    raises(openai.NotFoundError, lambda: client.models.retrieve("gpt-none"), "model_not_found", "model")


@check
def a_whole_chat_answer(client):
    answer = chat(client, extra_body=NO_THINKING)
    choice = answer.choices[0]
    assert choice.message.content.strip() == "pong", choice
    assert choice.message.role == "assistant" and choice.finish_reason == "stop"
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0
    assert usage.completion_tokens_details.reasoning_tokens == 0
    assert answer.object == "chat.completion" and answer.system_fingerprint.startswith("fp_")


@check
def reasoning_is_apart_from_the_answer(client):
    answer = chat(client)
    message = answer.choices[0].message
    assert message.reasoning_content and "think>" not in message.reasoning_content, message
    assert message.content.strip() == "pong", message
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0


@check
def a_streamed_chat_answer(client):
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}, extra_body=NO_THINKING))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.strip() == "pong", text
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


@check
def the_clients_own_stream_helper(client):
    with client.chat.completions.stream(
        model=client.served_model, messages=PING, temperature=0, max_tokens=200, extra_body=NO_THINKING
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content.strip() == "pong", final


@check
def log_probabilities_of_a_chat(client):
    whole = chat(client, logprobs=True, top_logprobs=3, extra_body=NO_THINKING)
    tokens = whole.choices[0].logprobs.content
    assert "".join(token.token for token in tokens).strip() == "pong", tokens
    assert all(len(token.top_logprobs) == 3 and token.logprob <= 0 for token in tokens)
    assert bytes(byte for token in tokens for byte in token.bytes).decode().strip() == "pong"
    stream = chat(client, logprobs=True, stream=True, extra_body=NO_THINKING)
    streamed = [chunk.choices[0].logprobs for chunk in stream if chunk.choices]
    streamed = [token.token for logprobs in streamed if logprobs for token in logprobs.content]
    assert streamed == [token.token for token in tokens], streamed


@check
def a_completion(client):
    answer = client.completions.create(
        model=client.served_model, prompt=STORY, max_tokens=8, temperature=0, logprobs=2
    )
    choice = answer.choices[0]
    assert answer.object == "text_completion" and choice.text
    assert choice.finish_reason in ("length", "stop") and answer.usage.completion_tokens <= 8
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text, (logprobs.tokens, choice.text)
    assert logprobs.text_offset[0] == 0 and len(logprobs.top_logprobs) == len(logprobs.tokens)
    stream = client.completions.create(
        model=client.served_model, prompt=STORY, max_tokens=8, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == choice.text


@check
def a_completion_stops_at_a_stop_string(client):
    free = client.completions.create(model=client.served_model, prompt=STORY, max_tokens=8, temperature=0)
    stop = free.choices[0].text[1:3]
    cut = client.completions.create(
        model=client.served_model, prompt=STORY, max_tokens=8, temperature=0, stop=[stop]
    )
    assert cut.choices[0].text == free.choices[0].text.split(stop)[0], cut
    assert cut.choices[0].finish_reason == "stop"


@check
def a_tool_is_called_and_its_result_is_read(client):
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    answer = chat(client, messages=messages, tools=[WEATHER])
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls", choice
    call = choice.message.tool_calls[0]
    assert call.function.name == "get_weather" and call.type == "function" and call.id
    assert json.loads(call.function.arguments) == {"city": "Oslo"}, call.function.arguments
    messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "rain, 7 degrees"}]
    final = chat(client, messages=messages, tools=[WEATHER])
    assert final.choices[0].message.content, final


@check
def a_streamed_tool_call(client):
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    stream = chat(client, messages=messages, tools=[WEATHER], stream=True)
    calls, finish = {}, None
    for chunk in stream:
        for call in chunk.choices[0].delta.tool_calls or []:
            name, arguments = calls.get(call.index, ("", ""))
            calls[call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
        finish = chunk.choices[0].finish_reason or finish
    assert finish == "tool_calls"
    assert calls[0][0] == "get_weather" and json.loads(calls[0][1]) == {"city": "Oslo"}, calls


@check
def a_seed_of_zero_reproduces(client):
    story = [{"role": "user", "content": "Tell me a short story about a lighthouse."}]
    answers = [
        chat(client, messages=story, seed=0, temperature=1, max_tokens=24).choices[0].message
        for _ in range(2)
    ]
    assert answers[0] == answers[1], answers


@check
def refusals_are_the_right_exceptions(client):
    bad = openai.BadRequestError
    raises(bad, lambda: chat(client, temperature=3), "invalid_value", "temperature")
    raises(bad, lambda: chat(client, n=2), "unsupported_parameter", "n")
    raises(bad, lambda: chat(client, messages=[]), "invalid_value", "messages")
    raises(bad, lambda: chat(client, response_format={"type": "json_object"}), param="response_format")
    raises(bad, lambda: chat(client, reasoning_effort="extreme"), "invalid_value", "reasoning_effort")
    long = [{"role": "user", "content": "a long word " * 20000}]
    error = raises(bad, lambda: chat(client, messages=long), "context_length_exceeded", "messages")
    assert "maximum context length is" in error.message, error.message
    raises(bad, lambda: chat(client, messages=long, stream=True), "context_length_exceeded")
    missing = lambda: client.chat.completions.create(model="gpt-none", messages=PING)
    raises(openai.NotFoundError, missing, "model_not_found", "model")


@check
def a_wrong_key_is_refused(client):
    if client.api_key == "none":
        return
    wrong = client.with_options(api_key="wrong", max_retries=0)
    raises(openai.AuthenticationError, wrong.models.list, "invalid_api_key")


@check
def closing_a_stream_early_frees_the_server(client):
    story = [{"role": "user", "content": "Write a short story about a lighthouse."}]

    async def run():
        options = {"base_url": str(client.base_url), "api_key": client.api_key, "max_retries": 0}
        async with openai.AsyncOpenAI(**options) as other:
            stream = await other.chat.completions.create(
                model=client.served_model, messages=story, stream=True, max_tokens=400
            )
            async for chunk in stream:
                if chunk.choices[0].delta.content or getattr(chunk.choices[0].delta, "reasoning_content", None):
                    break
            await stream.close()
            # Whole answers that run side by side, one of which is given up.
            tasks = [
                asyncio.create_task(
                    other.chat.completions.create(
                        model=client.served_model, messages=PING, temperature=0, extra_body=NO_THINKING
                    )
                )
                for _ in range(3)
            ]
            await asyncio.sleep(0.005)
            tasks[1].cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert answers[0].choices[0].message.content.strip() == "pong"
            assert answers[2].choices[0].message.content.strip() == "pong"

    asyncio.run(run())
    root = str(client.base_url).rstrip("/").removesuffix("/v1")
    deadline = time.monotonic() + 5
    while True:
        with urllib.request.urlopen(root + "/health") as response:
            health = json.load(response)
        if health["running"] == 0 and health["waiting"] == 0:
            return
        assert time.monotonic() < deadline, health
        time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base_url")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--model", default="demo")
    arguments = parser.parse_args()
    client = openai.OpenAI(base_url=arguments.base_url, api_key=arguments.api_key, max_retries=0, timeout=120)
    client.served_model = arguments.model
    failed = 0
    for function in CHECKS:
        start = time.monotonic()
        try:
            function(client)
            verdict = "ok"
        except Exception:
            traceback.print_exc()
            verdict = "FAILED"
            failed += 1
        print(f"{verdict:6} {time.monotonic() - start:6.2f} s  {function.__name__}", flush=True)
    print(f"openai {openai.__version__}: {len(CHECKS) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
