"""No secret gets into a folder that people pass on, by name or by value; what helps stays readable."""

from __future__ import annotations

import pytest

from chaos.engine.forensics.redact import NOT_SAVED, REDACTED, Redactor

SECRET = "sk-very-secret-0815"  # noqa: S105 - made up


@pytest.mark.parametrize(
    "name", ["API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "SGLANG_API_KEY", "NGC_CLI_TOKEN"]
)
def test_a_variable_that_calls_itself_a_secret_is_redacted_there_and_everywhere_else(name: str) -> None:
    redactor = Redactor()
    assert {name: REDACTED} == redactor.environment({name: SECRET})
    assert f"started with {REDACTED}" == redactor.text(f"started with {SECRET}")


def test_of_variables_that_do_not_concern_the_engine_only_the_name_is_saved() -> None:
    env = {"SGLANG_LOG_LEVEL": "info", "UCX_TLS": "tcp", "GITHUB_PAT": SECRET, "HOME": "/home/somebody"}
    assert {"GITHUB_PAT": NOT_SAVED, "HOME": NOT_SAVED, "SGLANG_LOG_LEVEL": "info", "UCX_TLS": "tcp"} == (
        Redactor().environment(env)
    )


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--api-key", SECRET, "--port", "1"], ["--api-key", REDACTED, "--port", "1"]),
        ([f"--hf-token={SECRET}"], [f"--hf-token={REDACTED}"]),
        (["--admin-api-key", "--port", "1"], ["--admin-api-key", "--port", "1"]),
        (["--max-total-tokens", "4096"], ["--max-total-tokens", "4096"]),
        (["--tokenizer-path", "meta/llama"], ["--tokenizer-path", "meta/llama"]),
        (["python", "-m", "sglang.launch_server"], ["python", "-m", "sglang.launch_server"]),
    ],
)
def test_command_lines_lose_the_values_of_secret_arguments_only(words: list[str], shown: list[str]) -> None:
    assert shown == Redactor().arguments(words)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            f"server_args=ServerArgs(api_key='{SECRET}', port=1)",
            f"server_args=ServerArgs(api_key='{REDACTED}', port=1)",
        ),
        (f'{{"hf_token": "{SECRET}"}}', f'{{"hf_token": "{REDACTED}"}}'),
        (f"Authorization: Bearer {SECRET}", f"Authorization: Bearer {REDACTED}"),
        (f"run --api-key {SECRET} --x", f"run --api-key {REDACTED} --x"),
        (f"http://user:{SECRET}@proxy:3128/", f"http://{REDACTED}@proxy:3128/"),
        (f"DB_PASSWORD={SECRET}", f"DB_PASSWORD={REDACTED}"),
        (f'"args": "{{\\"api_key\\": \\"{SECRET}\\"}}"', f'"args": "{{\\"api_key\\": \\"{REDACTED}\\"}}"'),
    ],
)
def test_texts_lose_what_looks_like_a_secret(line: str, shown: str) -> None:
    assert shown == Redactor().text(line)


@pytest.mark.parametrize(
    "line",
    [
        "Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, token usage: 0.31",
        "ServerArgs(tokenizer_path='m', api_key=None, max_total_tokens=4096, admin_api_key=None)",
        'sglang:max_total_num_tokens{model_name="m",tp_rank="0"} 4096.0',
        "AssertionError: First message should be b'NixlMsgGuard'. Foreign traffic?",
        "the secret sharing step failed",
        f'{{"api_key": "{REDACTED}", "hf_token": "{REDACTED}"}}',
        "Decode transfer failed for request rank=0 req.rid='a' req.bootstrap_room=12",
    ],
)
def test_what_helps_stays_as_it_is(line: str) -> None:
    assert line == Redactor().text(line)


def test_a_document_is_redacted_by_its_names_and_by_known_values() -> None:
    redactor = Redactor([SECRET])
    told = {"api_key": "k-123456", "args": [f"x {SECRET}", {"token_usage": 0.5, "tokenizer_path": "m", "n": None}]}
    assert {
        "api_key": REDACTED,
        "args": [f"x {REDACTED}", {"token_usage": 0.5, "tokenizer_path": "m", "n": None}],
    } == redactor.value(told)
    assert REDACTED == redactor.text("k-123456")


def test_short_and_plain_values_are_not_removed_everywhere() -> None:
    redactor = Redactor()
    redactor.environment({"A_KEY": "abc", "B_TOKEN": "12345678", "C_SECRET": "true"})
    assert "abc 12345678 true" == redactor.text("abc 12345678 true")
