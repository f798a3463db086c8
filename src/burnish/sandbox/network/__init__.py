"""What a box may reach of the network: a policy, and the proxy that is its only way out.

A box has no network of its own. Its owner may give it a listening socket on the box's loopback and serve that with a
`Proxy`, which resolves names itself, judges the addresses they lead to, and records every verdict.
"""

from burnish.sandbox.network.policy import NetworkPolicy, PhasePolicies, Rule, policy_for
from burnish.sandbox.network.proxy import Proxy
from burnish.sandbox.network.records import Closed, NetworkRecord, Verdict
from burnish.sandbox.network.session import ProxyLimits, Resolve

__all__ = [
    "Closed", "NetworkPolicy", "NetworkRecord", "PhasePolicies", "Proxy", "ProxyLimits", "Resolve", "Rule", "Verdict",
    "policy_for",
]  # fmt: skip
