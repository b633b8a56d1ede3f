"""The token file is read into entries, and each mistake in it is reported."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tuskpoint_server.auth.tokens import parse_tokens, read_tokens
from tuskpoint_server.commands.token import new_token
from tuskpoint_server.core.credentials import (
    Credentials,
    Grant,
    Issuer,
    Quota,
    Scope,
    token_digest,
)
from tuskpoint_server.core.process import ConfigError

TOKEN = "tusk_" + "x" * 43
DIGEST = token_digest(TOKEN).hex()
GOOD = {"name": '"ci"', "sha256": f'"{DIGEST}"', "tenant": '"default"', "scopes": '["read"]'}


def entry(kind: str = "token", **changes: str) -> str:
    """Return an entry as it is written in a file; a change of "" leaves the key out."""
    keys = {**GOOD, **changes}
    lines = [f"{key} = {value}" for key, value in keys.items() if value]
    return "\n".join([f"[[{kind}]]", *lines, ""])


def parsed(*entries: str, certificates: bool = True) -> Credentials:
    return parse_tokens("\n".join(entries).encode(), "--tokens t.toml", certificates=certificates)


def problem(*entries: str, certificates: bool = True) -> str:
    with pytest.raises(ConfigError) as refused:
        parsed(*entries, certificates=certificates)
    text = str(refused.value)
    assert text.startswith("--tokens t.toml")
    assert "\n" not in text
    return text


def test_a_token_is_found_by_its_digest() -> None:
    expires = datetime(2030, 1, 1, tzinfo=UTC)
    grants = parsed(
        entry(scopes='["read", "handoff"]', expires="2030-01-01T00:00:00Z"),
        entry(name='"other"', sha256=f'"{"A" * 64}"', tenant='"team-2"', scopes='["admin"]'),
    )
    assert grants.find(token_digest(TOKEN)) == Grant(
        "ci", "default", frozenset({Scope.READ, Scope.HANDOFF}), expires
    )
    assert grants.find(b"\xaa" * 32) == Grant("other", "team-2", frozenset({Scope.ADMIN}))
    assert grants.find(token_digest("tusk_guess")) is None
    assert grants.find(()) is None


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"name": ""}, "token 1: name is missing"),
        ({"name": '""'}, "token 1: name: a name has 1 to 64"),
        ({"name": f'"{"n" * 65}"'}, "token 1: name: a name has 1 to 64"),
        ({"name": r'"a\nb"'}, "token 1: name: a name is a printable text"),
        ({"name": "7"}, "token 1: name: a name is a printable text"),
        ({"name": f'"{TOKEN}"'}, "token 1: name: a name is shown in logs"),
        ({"sha256": ""}, "token 1 ('ci'): sha256 is missing"),
        ({"sha256": f'"{TOKEN}"'}, "token 1 ('ci'): sha256: the SHA-256 of the token"),
        ({"sha256": f'"{DIGEST[:-1]}"'}, "token 1 ('ci'): sha256: the SHA-256 of the token"),
        ({"tenant": ""}, "token 1 ('ci'): tenant is missing"),
        ({"scopes": ""}, "token 1 ('ci'): scopes is missing"),
        ({"scopes": "[]"}, "token 1 ('ci'): scopes: a list of at least one of read, write"),
        ({"scopes": '"read"'}, "token 1 ('ci'): scopes: a list of at least one of"),
        ({"scopes": '["raed"]'}, "token 1 ('ci'): scopes: 'raed' is not a scope; scopes are read"),
        ({"scopes": f'["{TOKEN}"]'}, "token 1 ('ci'): scopes: something is not a scope"),
        ({"scopes": "[[1]]"}, "token 1 ('ci'): scopes: something is not a scope"),
        ({"expires": "2030-01-01T00:00:00"}, "token 1 ('ci'): expires: a time with an offset"),
        ({"expires": "2030-01-01"}, "token 1 ('ci'): expires: a time with an offset"),
        ({"expires": '"tomorrow"'}, "token 1 ('ci'): expires: a time with an offset"),
        ({"expire": "2030-01-01T00:00:00Z"}, "token 1 ('ci'): 'expire' is not a key; keys are"),
        ({TOKEN: "1"}, "token 1 ('ci'): something is not a key"),
    ],
)
def test_an_entry_that_cannot_be_used_is_named_and_nothing_secret_is(
    changes: dict[str, str], reported: str
) -> None:
    text = problem(entry(**changes))
    assert reported in text
    assert TOKEN not in text


@pytest.mark.parametrize(
    "tenant", ["", "Acme", "a.b", "a/b", "../a", "-a", "_a", "a b", "ä", "a" * 65]
)
def test_an_invalid_tenant_is_refused_with_the_rule(tenant: str) -> None:
    assert "tenant: a tenant is 1 to 64 of the characters a-z" in problem(
        entry(tenant=f'"{tenant}"')
    )


@pytest.mark.parametrize("tenant", ["default", "a", "7", "team-2_b", "a" * 64])
def test_valid_tenant_names(tenant: str) -> None:
    [grant] = parsed(entry(tenant=f'"{tenant}"')).tokens.values()
    assert grant.tenant == tenant


def test_two_entries_with_one_hash_are_refused() -> None:
    twice = entry(name='"second"', sha256=f'"{DIGEST.upper()}"')
    assert "token 2 ('second'): sha256: an earlier entry has the same" in problem(entry(), twice)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ("", "lets nobody call; `tuskpoint-server token --append FILE` adds a token"),
        ("token = []", "lets nobody call"),
        ('[[quota]]\ntenant = "a"', "lets nobody call"),
        ("[token]\nname = 'x'", "write each entry as [[token]]"),
        ("token = [1]", "write each entry as [[token]]"),
        ("tokens = 1", "'tokens' is not a kind of entry"),
        (f"{TOKEN} = 1", "something is not a kind of entry"),
        ("x = = 1", "is not TOML"),
        ("x = " + "[" * 5000, "is not TOML"),
        ("x = " + "9" * 5000, "is not TOML"),
    ],
)
def test_files_that_are_no_token_file_are_refused(content: str, reported: str) -> None:
    assert reported in problem(content)
    assert TOKEN not in problem(content)


def test_a_file_that_is_not_utf_8_is_reported() -> None:
    with pytest.raises(ConfigError, match="is not TOML: 'utf-8' codec"):
        parse_tokens(b"\xff", "--tokens t.toml")


def test_a_certificate_gets_the_grant_of_its_entry() -> None:
    grants = parsed(entry("certificate", sha256="", subject='"indexer.example"'))
    grant = Grant("ci", "default", frozenset({Scope.READ}))
    assert grants.find(("indexer.example", "indexer")) == grant
    assert grants.find(("other.example",)) is None


def test_a_certificate_with_names_of_two_entries_matches_neither() -> None:
    grants = parsed(
        entry("certificate", sha256="", subject='"a.example"'),
        entry("certificate", sha256="", subject='"b.example"', tenant='"other"'),
    )
    assert (
        grants.find(
            (
                "a.example",
                "b.example",
            )
        )
        is None
    )


def test_certificates_need_a_client_ca() -> None:
    subject = entry("certificate", sha256="", subject='"a.example"')
    assert "--tls-client-ca" in problem(subject, certificates=False)
    assert "certificate 1 ('ci'): 'expires' is not a key" in problem(
        subject + "expires = 2030-01-01T00:00:00Z\n"
    )


def test_a_new_token_is_random_and_its_entry_holds_only_its_hash() -> None:
    grant = Grant('say "hi"', "acme", frozenset(Scope), datetime(2030, 1, 1, 1, tzinfo=UTC))
    (token, new), (other, _) = new_token(grant), new_token(grant)
    assert token != other
    assert len(token) == len("tusk_") + 43
    assert token not in new
    assert parsed(new).find(token_digest(token)) == grant


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml cannot be read: No such file"):
        read_tokens(tmp_path / "gone.toml", certificates=False)


def quota(lines: str) -> str:
    return f"[[quota]]\n{lines}"


def test_quotas_are_of_a_tenant_or_of_each_other_one() -> None:
    credentials = parsed(
        entry(), quota('tenant = "acme"\nthreads = 5'), quota('tenant = "*"\nopen_streams = 2')
    )
    assert credentials.quotas == {"acme": Quota(threads=5), "*": Quota(open_streams=2)}


@pytest.mark.parametrize(
    ("lines", "reported"),
    [
        ("threads = 5", "quota 1: tenant is missing"),
        ('tenant = "Acme"', "quota 1: tenant: a tenant is 1 to 64"),
        ('tenant = "a"\nthreads = 0', "quota 1: threads: a whole number above 0"),
        ('tenant = "a"\nthreads = true', "quota 1: threads: a whole number above 0"),
        ('tenant = "a"\nbytes_per_second = 1.5', "bytes_per_second: a whole number above 0"),
        ('tenant = "a"\nthread = 5', "quota 1: 'thread' is not a key; keys are bytes_per_second, "),
    ],
)
def test_quotas_that_cannot_be_used_are_refused(lines: str, reported: str) -> None:
    assert reported in problem(entry(), quota(lines))


def test_a_tenant_has_one_quota() -> None:
    again = quota('tenant = "a"')
    assert "quota 2: tenant: an earlier entry has the same" in problem(entry(), again, again)


def issuer(lines: str, url: str = "https://login.example") -> str:
    return f'[[issuer]]\nurl = "{url}"\naudience = "tuskpoint"\n{lines}'


def test_an_issuer_grants_what_is_fixed_or_what_its_claims_say() -> None:
    credentials = parsed(
        issuer('tenant = "acme"\nscopes = ["read"]'),
        issuer('tenant_claim = "org"\nscope_claim = "scope"', "http://127.0.0.1:9/realm"),
    )
    assert credentials.issuers == {
        "https://login.example": Issuer("tuskpoint", "acme", scopes=frozenset({Scope.READ})),
        "http://127.0.0.1:9/realm": Issuer("tuskpoint", tenant_claim="org", scope_claim="scope"),
    }


@pytest.mark.parametrize(
    ("lines", "url", "reported"),
    [
        ('tenant = "a"', "https://i.example", "needs either scopes or scope_claim"),
        ('scopes = ["read"]', "https://i.example", "needs either tenant or tenant_claim"),
        (
            'tenant = "a"\ntenant_claim = "b"\nscopes = ["read"]',
            "https://i.example",
            "issuer https://i.example needs either tenant or tenant_claim",
        ),
        ("", "http://i.example", "issuer 1: url: the issuer's https URL"),
        ("", "i.example", "issuer 1: url: the issuer's https URL"),
        ('scope_claim = ""', "https://i.example", "scope_claim: a text that is not empty"),
        ("keys = 1", "https://i.example", "'keys' is not a key; keys are audience, scope_claim"),
    ],
)
def test_issuers_that_cannot_be_used_are_refused(lines: str, url: str, reported: str) -> None:
    assert reported in problem(issuer(lines, url))
