"""Rules: what they allow, what no rule allows, and what a wrong one says."""

import contextlib
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish.errors import UserError
from burnish.sandbox.network import NetworkPolicy, PhasePolicies
from burnish.sandbox.network.addresses import special_range
from burnish.sandbox.network.target import Refused, parse_authority

POLICY = NetworkPolicy.parse(
    [
        "pypi.org:443", "*.PythonHosted.org.:443,8000-8010", "example.com", "10.1.2.0/24:8080", "1.2.3.4",
        "[2001:db8::1]:443", "127.0.0.1:5000", "0.0.0.0/0:9000", "[::/0]:9000", "169.254.169.254:80",
    ]
)  # fmt: skip


def allowed(policy: NetworkPolicy, target: str) -> bool:
    try:
        policy.admit(parse_authority(target))
    except Refused as refused:
        assert refused.kind == "policy", refused
        return False
    return True


def leads(policy: NetworkPolicy, target: str, address: str) -> bool:
    asked = parse_authority(target)
    policy.admit(asked)
    try:
        policy.admit_address(asked, ip_address(address))
    except Refused as refused:
        assert refused.kind == "policy", refused
        return False
    return True


@pytest.mark.parametrize(
    "target",
    [
        "pypi.org:443", "PyPI.org.:443", "files.pythonhosted.org:443", "a.b.pythonhosted.org:8005", "example.com:80",
        "example.com:443", "10.1.2.0:8080", "10.1.2.255:8080", "1.2.3.4:80", "[2001:DB8:0::1]:443", "127.0.0.1:5000",
        "[::ffff:1.2.3.4]:80", "8.8.8.8:9000", "[2606:4700::1111]:9000", "169.254.169.254:80",
        "[64:ff9b::8.8.8.8]:9000",
    ],
)  # fmt: skip
def test_allowed(target: str) -> None:
    assert allowed(POLICY, target)


@pytest.mark.parametrize(
    "target",
    [
        "pypi.org:80", "www.pypi.org:443", "pythonhosted.org:443", "evilpythonhosted.org:443", "example.com:8080",
        "pypi.org.evil.com:443", "10.1.3.1:8080", "10.1.2.1:8081", "1.2.3.5:80", "127.0.0.2:5000", "127.0.0.1:5001",
        # a network of everything does not mean what is special
        "10.0.0.1:9000", "127.0.0.1:9000", "100.64.0.1:9000", "169.254.169.254:9000", "169.254.1.1:9000",
        "192.168.1.1:9000", "172.16.0.1:9000", "224.0.0.1:9000", "0.0.0.0:9000", "255.255.255.255:9000",
        "240.0.0.1:9000", "[::1]:9000", "[::]:9000", "[fe80::1]:9000", "[fd00:ec2::254]:9000", "[fc00::1]:9000",
        "[ff02::1]:9000", "[::ffff:127.0.0.1]:9000", "[::ffff:10.0.0.1]:9000", "[::127.0.0.1]:9000",
        "[64:ff9b::7f00:1]:9000", "[64:ff9b::a9fe:a9fe]:9000", "[64:ff9b::10.0.0.1]:9000", "[64:ff9b:1::1]:9000",
        "[2002:7f00:1::]:9000", "[2001::1]:9000", "[4000::1]:9000", "100.100.100.200:9000", "168.63.129.16:9000",
    ],
)  # fmt: skip
def test_denied(target: str) -> None:
    assert not allowed(POLICY, target)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.31.255.255", "169.254.169.254", "100.127.0.1", "0.0.0.0", "::1",
        "::", "fe80::1", "fd12::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "224.0.0.251", "fd00:ec2::254",
    ],
)  # fmt: skip
def test_a_name_leads_to_public_addresses_only(address: str) -> None:
    assert not leads(POLICY, "pypi.org:443", address)


def test_a_name_leads_to_public_addresses() -> None:
    assert leads(POLICY, "pypi.org:443", "151.101.0.223")
    assert leads(POLICY, "pypi.org:443", "2a04:4e42::223")


def test_a_name_leads_to_what_could_be_asked_for_by_address() -> None:
    policy = NetworkPolicy.parse(["registry.corp:8080", "10.1.2.0/24:8080"])
    assert leads(policy, "registry.corp:8080", "10.1.2.7")
    assert not leads(policy, "registry.corp:8080", "10.1.3.7")
    assert not leads(NetworkPolicy.parse(["registry.corp:8080", "10.1.2.0/24:80"]), "registry.corp:8080", "10.1.2.7")


def test_nothing_is_allowed_by_default() -> None:
    assert NetworkPolicy.none() == NetworkPolicy.parse([])
    assert not allowed(NetworkPolicy.none(), "pypi.org:443") and not allowed(NetworkPolicy.none(), "8.8.8.8:80")


def test_the_reason_tells_a_port_from_a_name() -> None:
    with pytest.raises(Refused, match=r"pypi\.org is allowed, but not port 22"):
        POLICY.admit(parse_authority("pypi.org:22"))
    with pytest.raises(Refused, match=r"evil\.example:22 is not in the allow list"):
        POLICY.admit(parse_authority("evil.example:22"))
    with pytest.raises(Refused, match=r"127.0.0.1:9000 is an address of a refused range \(loopback\)"):
        POLICY.admit(parse_authority("127.0.0.1:9000"))


def test_only_a_single_address_names_the_machine() -> None:
    policy = NetworkPolicy.parse(["203.0.113.5:80", "203.0.113.0/24:81"])
    assert policy.names_exactly(ip_address("203.0.113.5"), 80)
    assert not policy.names_exactly(ip_address("203.0.113.5"), 81)


def test_letters_of_other_scripts_are_the_same_rule_as_their_ascii_form() -> None:
    assert NetworkPolicy.parse(["b\u00fccher.example"]).allow[0].name == "xn--bcher-kva.example"
    assert allowed(NetworkPolicy.parse(["*.B\u00dcCHER.example:443"]), "a.xn--bcher-kva.example:443")


@pytest.mark.parametrize(
    "rule",
    [
        "", " pypi.org", "*", "*.", "*:443", "a.*.org", "*pypi.org", "https://pypi.org", "pypi.org/simple", "pypi.org:",
        "pypi.org:0", "pypi.org:65536", "pypi.org:443-80", "pypi.org:80,", "pypi.org:http",
        "pypi.org:\uff14\uff14\uff13", "user@pypi.org", "a..b",
        "-a.org", "a_.-", "fa\u00df.de", "1.2.3", "0x7f.1", "2130706433", "127.1", "01.2.3.4", "1.2.3.4.5",
        "10.1.2.3/24",
        "10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0.0/", "1.2.3.4/24/8", "[1.2.3.4]", "[::1", "[::1]443",
        "[fe80::1%eth0]",
        "fe80::1%1", "::ffff:1.2.3.4", "127.0.0.0/8", "[::1]x", "0.0.0.0", "::", "224.0.0.0/8", "ff02::1",
        "255.255.255.255",
        "pypi.org\n", "pypi.org\r\nx", "a" * 64 + ".org",
    ],
)  # fmt: skip
def test_a_bad_rule_is_named_with_a_fix(rule: str) -> None:
    with pytest.raises(UserError) as caught:
        NetworkPolicy.parse(["example.com", rule], where="network.act")
    assert repr(rule) in str(caught.value) and caught.value.fix and caught.value.where == "network.act"


def test_a_text_is_no_list() -> None:
    with pytest.raises(UserError, match="a list of rules"):
        NetworkPolicy.parse("pypi.org")
    with pytest.raises(UserError, match="443 is not a network rule"):
        NetworkPolicy.parse([443])  # type: ignore[list-item]


def test_the_fix_of_a_network_with_host_bits_is_the_network() -> None:
    with pytest.raises(UserError, match=r"fix: write 10\.1\.2\.0/24"):
        NetworkPolicy.parse(["10.1.2.3/24"])


def test_a_phase_that_is_not_mentioned_has_no_network() -> None:
    phases = PhasePolicies.parse({"setup": ["pypi.org"]})
    assert allowed(phases.of("setup"), "pypi.org:443")
    assert phases.of("act") == phases.of("grade") == NetworkPolicy.none()
    with pytest.raises(UserError, match="no phase 'install'"):
        PhasePolicies.parse({"install": ["pypi.org"]})
    with pytest.raises(UserError, match=r"network\.act: "):
        PhasePolicies.parse({"act": ["*"]})


@given(st.ip_addresses())
def test_what_python_calls_private_or_special_is_special_here(address: object) -> None:
    """Another table, kept by others: whatever it does not call global must not be public to us."""
    found = ip_address(str(address))
    if not found.is_global or found.is_multicast:
        assert special_range(found) is not None


@given(st.ip_addresses(v=4))
def test_a_carried_address_is_judged_like_itself(address: object) -> None:
    special = special_range(ip_address(str(address)))
    assert special_range(ip_address(f"64:ff9b::{address}")) == special


@given(st.text())
def test_any_text_is_a_rule_or_a_user_error(text: str) -> None:
    with contextlib.suppress(UserError):
        NetworkPolicy.parse([text])
