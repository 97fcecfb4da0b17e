"""The official OpenAI client, unchanged, against a running server: python openai_client.py http://127.0.0.1:PORT/v1

One line per check, last line `N passed, M failed`. The server must serve the demo model, which answers "ping" with "pong".
"""

import sys

import openai

PING = [{"role": "user", "content": "ping"}]
SURE = {"temperature": 0, "extra_body": {"enable_thinking": False}}


def models(client, model):
    assert model in [m.id for m in client.models.list().data]


def chat(client, model):
    answer = client.chat.completions.create(model=model, messages=PING, **SURE)
    assert answer.object == "chat.completion", answer.object
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content.strip() == "pong", answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop", answer.choices[0].finish_reason
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens > 0


def chat_stream(client, model):
    stream = client.chat.completions.create(
        model=model, messages=PING, stream=True, stream_options={"include_usage": True}, **SURE
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text.strip() == "pong", text
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens > 0 and not chunks[-1].choices


def reasoning(client, model):
    answer = client.chat.completions.create(model=model, messages=PING, temperature=0, reasoning_effort="low", max_tokens=400)
    assert answer.choices[0].message.content is not None
    assert "<think>" not in answer.choices[0].message.content


def completion(client, model):
    answer = client.completions.create(model=model, prompt="The capital of France is", max_tokens=4, temperature=0)
    assert answer.object == "text_completion" and answer.choices[0].finish_reason in ("length", "stop")
    assert 1 <= answer.usage.completion_tokens <= 4


def completion_stream(client, model):
    whole = client.completions.create(model=model, prompt="Once upon", max_tokens=12, temperature=0).choices[0].text
    parts = client.completions.create(model=model, prompt="Once upon", max_tokens=12, temperature=0, stream=True)
    assert "".join(c.choices[0].text for c in parts if c.choices) == whole


def seeds_reproduce(client, model):
    def once():
        tale = [{"role": "user", "content": "Tell me a short story."}]
        answer = client.chat.completions.create(
            model=model, messages=tale, seed=7, temperature=1.0, max_tokens=24, extra_body={"enable_thinking": False}
        )
        return answer.choices[0].message.content

    assert once() == once()


def log_probabilities(client, model):
    answer = client.chat.completions.create(model=model, messages=PING, logprobs=True, top_logprobs=3, **SURE)
    first = answer.choices[0].logprobs.content[0]
    assert len(first.top_logprobs) == 3 and first.logprob <= 0
    assert first.top_logprobs[0].token == first.token


def stop_strings(client, model):
    answer = client.chat.completions.create(model=model, messages=PING, stop=["on"], **SURE)
    assert answer.choices[0].message.content == "p", answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"


def several_answers_are_refused(client, model):
    refused(lambda: client.chat.completions.create(model=model, messages=PING, n=2, **SURE))


def empty_messages_are_refused(client, model):
    refused(lambda: client.chat.completions.create(model=model, messages=[], **SURE))


def long_prompts_are_refused(client, model):
    long = [{"role": "user", "content": "word " * 50_000}]
    error = refused(lambda: client.chat.completions.create(model=model, messages=long, **SURE))
    assert error.code == "context_length_exceeded", error.code
    assert "maximum context length is" in str(error), error


def refused(call):
    try:
        call()
    except openai.BadRequestError as error:
        return error
    raise AssertionError("the request was not refused")


CHECKS = [
    models, chat, chat_stream, reasoning, completion, completion_stream, seeds_reproduce, log_probabilities, stop_strings,
    several_answers_are_refused, empty_messages_are_refused, long_prompts_are_refused,
]


def main():
    client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=60)
    model = client.models.list().data[0].id
    failed = 0
    for check in CHECKS:
        try:
            check(client, model)
            print(f"ok      {check.__name__}")
        except Exception as error:  # a check may fail in any way; the others still run
            failed += 1
            print(f"FAILED  {check.__name__}: {type(error).__name__}: {error}")
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
