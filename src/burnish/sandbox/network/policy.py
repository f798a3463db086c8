"""What a box may reach: a list of rules, and what is not on it is denied.

| rule | means |
|---|---|
| `pypi.org` | this name, ports 80 and 443 |
| `*.pythonhosted.org:443` | names below it, not itself |
| `1.2.3.4:8000-8100,9000`, `[2001:db8::1]:443` | an address, with ports |
| `10.1.2.0/24:8080` | a network |

A name leads to public addresses only, whatever it resolves to. An address or network of a special range (private,
link-local, ...) can be reached when a rule speaks of it plainly: `10.1.2.0/24` does, `0.0.0.0/0` does not. The machine
itself (loopback, and its other addresses) and metadata services need a rule that is their single address. A name that
is not on the list is never resolved: a look-up is a message to the outside as well.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Network, ip_network

from burnish.errors import UserError
from burnish.sandbox.network.addresses import RANGES, Address, Network, lies_in, parse_address, special_range
from burnish.sandbox.network.target import Refused, Target, parse_name

DEFAULT_PORTS = ((80, 80), (443, 443))
PHASES = ("setup", "act", "grade")
_FORMS = "write pypi.org:443, *.pythonhosted.org, 1.2.3.4:8000-8100, 10.1.2.0/24:80,8080 or [2001:db8::1]:443"
_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One line of the allow list. Exactly one of `name` and `network` is set.

    Example: Rule(text="*.pythonhosted.org:443", name="pythonhosted.org", subdomains=True, network=None,
        ports=((443, 443),))
    """

    text: str
    name: str | None
    subdomains: bool  # names below `name`, not itself
    network: Network | None
    ports: tuple[tuple[int, int], ...]  # first and last, both included

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Reads one rule. Raises UserError."""
        host, ports = _split(text)
        network = _parse_network(text, host)
        if network is not None:
            return cls(text=text, name=None, subdomains=False, network=network, ports=_parse_ports(text, ports))
        subdomains = host.startswith("*.")
        name = _parse_rule_name(text, host.removeprefix("*."))
        return cls(text=text, name=name, subdomains=subdomains, network=None, ports=_parse_ports(text, ports))

    def takes_port(self, port: int) -> bool:
        return any(first <= port <= last for first, last in self.ports)

    def takes_name(self, name: str) -> bool:
        if self.name is None:
            return False
        return name.endswith(f".{self.name}") if self.subdomains else name == self.name

    def takes_address(self, address: Address) -> bool:
        return self.network is not None and address in self.network


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """An allow list. Equal lists are equal policies.

    Example: NetworkPolicy.parse(["pypi.org:443", "*.pythonhosted.org:443"])
    """

    allow: tuple[Rule, ...] = ()

    @classmethod
    def parse(cls, rules: Iterable[str], *, where: str | None = None) -> "NetworkPolicy":
        """Reads rules as a person writes them. Raises UserError that names the rule; `where` is their key."""
        if isinstance(rules, str):
            raise UserError(f"a list of rules is needed, not the text {rules!r}", where=where, fix=_FORMS)
        parsed = []
        for text in rules:
            try:
                parsed.append(Rule.parse(text))
            except UserError as error:
                raise UserError(error.cause, where=where, fix=error.fix) from None
        return cls(tuple(parsed))

    @classmethod
    def none(cls) -> "NetworkPolicy":
        """Nothing is allowed."""
        return cls()

    def admit(self, target: Target) -> Rule:
        """The rule that allows a target, before anything is resolved. Raises Refused.

        For an address this is the whole verdict. A name is resolved next, and each address goes to `admit_address`.
        """
        matching = [rule for rule in self.allow if self._speaks_of(rule, target)]
        allowing = [rule for rule in matching if rule.takes_port(target.port)]
        if not allowing:
            known = f"{target.host} is allowed, but not port {target.port}"
            raise Refused(known if matching else f"{target} is not in the allow list", kind="policy")
        if target.address is None:
            return allowing[0]
        return self._rule_for(target.address, target.port) or _deny_special(target, target.address)

    def admit_address(self, target: Target, address: Address) -> None:
        """Whether the connection to an admitted target may go to this address. Raises Refused.

        A name may go to the public internet, and to whatever the box could also have asked for by address.
        """
        public_name = target.address is None and special_range(address) is None
        if not public_name and self._rule_for(address, target.port) is None:
            _deny_special(target, address)

    def names_exactly(self, address: Address, port: int) -> bool:
        """Whether a rule is this single address: what it takes to reach the machine that the proxy runs on."""
        rules = [rule for rule in self.allow if rule.takes_address(address) and rule.takes_port(port)]
        return any(rule.network is not None and rule.network.num_addresses == 1 for rule in rules)

    @staticmethod
    def _speaks_of(rule: Rule, target: Target) -> bool:
        return rule.takes_name(target.host) if target.address is None else rule.takes_address(target.address)

    def _rule_for(self, address: Address, port: int) -> Rule | None:
        special = special_range(address)
        for rule in self.allow:
            if rule.network is None or not (rule.takes_address(address) and rule.takes_port(port)):
                continue
            if special is None or special.yields_to(rule.network):
                return rule
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class PhasePolicies:
    """The policy of each phase of a task. A phase that is not mentioned has no network.

    Example: PhasePolicies(setup=NetworkPolicy.parse(["pypi.org:443"]))
    """

    setup: NetworkPolicy = NetworkPolicy()
    act: NetworkPolicy = NetworkPolicy()
    grade: NetworkPolicy = NetworkPolicy()

    @classmethod
    def parse(cls, rules: Mapping[str, Iterable[str]], *, where: str = "network") -> "PhasePolicies":
        """Reads `{phase: rules}`. Raises UserError, also for a phase that does not exist."""
        for phase in rules:
            if phase not in PHASES:
                raise UserError(f"there is no phase {phase!r}", where=where, fix=f"use {', '.join(PHASES)}")
        return cls(**{phase: NetworkPolicy.parse(lines, where=f"{where}.{phase}") for phase, lines in rules.items()})

    def of(self, phase: str) -> NetworkPolicy:
        """The policy of one phase."""
        assert phase in PHASES, phase
        policy: NetworkPolicy = getattr(self, phase)
        return policy


def policy_for(rules: Mapping[str, Iterable[str]], phase: str) -> NetworkPolicy | None:
    """What `{phase: rules}` means for a sandbox of one phase: a policy, or no network at all. Raises UserError."""
    policy = PhasePolicies.parse(rules).of(phase)
    return policy if policy.allow else None


def _deny_special(target: Target, address: Address) -> Rule:
    special = special_range(address)
    if special is None:
        raise Refused(f"{target} is not in the allow list", kind="policy")
    verb = "leads to" if target.address is None else "is"
    raise Refused(f"{target} {verb} an address of a refused range ({special.name})", kind="policy")


def _split(text: str) -> tuple[str, str | None]:
    """Host and ports of a rule. A bare IPv6 address has colons of its own and takes no ports without brackets."""
    if not isinstance(text, str) or not text or text != text.strip():
        raise UserError(f"{text!r} is not a network rule", fix=_FORMS)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in host or (rest and not rest.startswith(":")):
            raise UserError(f"network rule {text!r}: brackets go around an IPv6 address", fix=_FORMS)
        return host, rest[1:] if rest else None
    if text.count(":") > 1:
        return text, None
    host, colon, ports = text.partition(":")
    return host, ports if colon else None


def _parse_ports(text: str, ports: str | None) -> tuple[tuple[int, int], ...]:
    if ports is None:
        return DEFAULT_PORTS
    found = []
    for part in ports.split(","):
        match = _PORTS.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= 65535:
            raise UserError(f"network rule {text!r}: {part!r} is not a port or range of ports", fix=_FORMS)
        found.append((first, last))
    return tuple(found)


def _parse_network(text: str, host: str) -> Network | None:
    """The network that the host of a rule is; None for a name. Refuses a rule that could never allow anything."""
    base, slash, prefix = host.partition("/")
    if parse_address(base) is None:
        if slash or ":" in base:
            raise UserError(f"network rule {text!r}: {base!r} is not an IP address", fix=_FORMS)
        return None
    if slash and not re.fullmatch(r"[0-9]{1,3}", prefix):
        raise UserError(f"network rule {text!r}: {prefix!r} is not a prefix length", fix="write it as 10.1.2.0/24")
    try:
        network = ip_network(host)
    except ValueError as error:
        raise UserError(f"network rule {text!r}: {error}", fix=f"write {_nearest(host)}") from None
    if isinstance(network, IPv6Network) and lies_in(network, IPv6Network("::ffff:0:0/96")):
        raise UserError(f"network rule {text!r}: an IPv4 address in IPv6 form", fix="write the IPv4 address")
    for special in RANGES:
        if lies_in(network, special.network) and not special.yields_to(network):
            single = "name each address by itself" if special.consent == "single" else "leave the rule out"
            raise UserError(f"network rule {text!r}: never allowed as a rule ({special.name})", fix=single)
    return network


def _nearest(host: str) -> str:
    try:
        return str(ip_network(host, strict=False))
    except ValueError:
        return "a prefix length of at most 32 (IPv4) or 128 (IPv6)"


def _parse_rule_name(text: str, host: str) -> str:
    """Rules may be written with letters of any script; boxes ask for the ASCII form."""
    try:
        ascii_host = host.encode("idna").decode()
        if not host.isascii() and ascii_host.encode().decode("idna") != host.lower():
            # The codec is of 2003 and maps some letters to others (a sharp s to ss): that would be another name.
            raise UserError(f"network rule {text!r}: the name has no single ASCII form", fix="write its xn-- form")
        return parse_name(ascii_host)
    except (UnicodeError, Refused):
        pass
    star = "; * stands only at the start, for names below the rest" if "*" in text else ""
    raise UserError(f"network rule {text!r}: {host!r} is not a host name{star}", fix=_FORMS)
