"""Which addresses a box may be led to, and how plainly a rule must say so.

Everything special is named in one table: private networks, the machine itself, cloud metadata, and the ranges that
no public service lives in (the IANA special-purpose registries, RFC 6890). A host name never leads to any of them. A
rule that is an address or a CIDR may, as far as the range consents.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Consent = Literal["network", "single", "never"]


@dataclass(frozen=True, slots=True)
class SpecialRange:
    """Addresses that are not the public internet.

    `consent` is what a rule must be to reach one: a "network" that lies wholly in the range, the "single" address,
    or "never".

    Example: SpecialRange(IPv4Network("10.0.0.0/8"), "private", "network")
    """

    network: Network
    name: str
    consent: Consent

    def yields_to(self, rule: Network) -> bool:
        """Whether a rule for this network, which holds the address, speaks of this range plainly enough."""
        if self.consent == "never":
            return False
        return rule.num_addresses == 1 or (self.consent == "network" and lies_in(rule, self.network))


_METADATA = """
    169.254.169.254 169.254.170.2 169.254.170.23 100.100.100.200 192.0.0.192 168.63.129.16 169.254.0.23 169.254.42.42
    fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:c1::a9fe:a9fe fd00:42::42
"""  # most clouds, Amazon's containers (2), Alibaba, Oracle, Azure, Tencent, Scaleway; IPv6: Amazon (2), Google, ...
_TABLE: tuple[tuple[str, Consent, str], ...] = (  # the first that holds an address counts
    ("metadata service", "single", _METADATA),
    ("loopback", "single", "127.0.0.0/8 ::1"),
    ("unspecified", "never", "0.0.0.0/8 ::"),
    ("multicast", "never", "224.0.0.0/4 ff00::/8"),
    ("broadcast", "never", "255.255.255.255"),
    ("private", "network", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
    ("carrier-grade NAT", "network", "100.64.0.0/10"),
    ("link-local", "network", "169.254.0.0/16 fe80::/10"),
    ("documentation", "network", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
    ("benchmarking", "network", "198.18.0.0/15"),
    ("protocol assignment", "network", "192.0.0.0/24 2001::/23"),  # with Teredo and ORCHID
    # Forms that carry an IPv4 address past a check of the outer one.
    ("6to4", "network", "192.88.99.0/24 2002::/16"),
    ("local NAT64", "network", "64:ff9b:1::/48"),
    ("reserved", "network", "240.0.0.0/4"),
)
RANGES = tuple(
    SpecialRange(ip_network(text), name, consent) for name, consent, texts in _TABLE for text in texts.split()
)
"""All that is special by name. IPv6 outside of 2000::/3 is special too, without standing here."""

_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052; what a host without IPv4 sees of the IPv4 internet
_GLOBAL = IPv6Network("2000::/3")


def parse_address(text: str) -> Address | None:
    """The address that `text` is, strictly; None for everything else, zone ids and libc's short forms included.

    An IPv4 address in IPv6 clothes (::ffff:1.2.3.4) comes back as the IPv4 address, which is what the kernel would
    connect to.
    """
    if "%" in text:
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def special_range(address: Address) -> SpecialRange | None:
    """What is special about an address; None for one of the public internet."""
    for found in RANGES:
        if address in found.network:
            return found
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return special_range(IPv4Address(int(address) & 0xFFFF_FFFF))
        if address not in _GLOBAL:
            return SpecialRange(IPv6Network(address), "reserved", "single")
    return None


def lies_in(inner: Network, outer: Network) -> bool:
    """Whether all of `inner` is in `outer`."""
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner.subnet_of(outer)
