"""From groups to rows of tokens: one row per group, in which everything its attempts share is computed once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from burnish.flow.buffer import Judged, num_fresh_tokens
from burnish.types import Batch, PackedRow, PolicyVersion, Trajectory


def make_batch(groups: Sequence[Judged], *, step: int, temperature: float, oldest: PolicyVersion = 0) -> Batch:
    """Packs the groups of one step. Tokens that versions before `oldest` sampled are context and not trained (I3).

    Raises ValueError for a group without a token to train.
    """
    return Batch(
        step=step,
        rows=tuple(pack_row(judged.trajectories, judged.advantages, oldest=oldest) for judged in groups),
        temperature=temperature,
        trajectory_ids=tuple(t.id for judged in groups for t in judged.trajectories if num_fresh_tokens(t, oldest)),
        group_ids=tuple(judged.group.id for judged in groups),
    )


def pack_row(
    trajectories: Sequence[Trajectory], advantages: Sequence[float], *, oldest: PolicyVersion = 0
) -> PackedRow:
    """One tree of segments: shared first prompts become roots, everything after them a branch of its own.

    Trajectories without a token to train are left out.

    A whole trajectory after its first prompt is one segment, sampled and appended tokens alike: attention inside it is
    causal anyway, and the loss mask tells what is trained.
    """
    row = _RowBuilder(oldest=oldest)
    roots: dict[tuple[int, ...], tuple[int, int]] = {}  # first prompt -> its segment and last token index
    for trajectory, advantage in zip(trajectories, advantages, strict=True):
        if not num_fresh_tokens(trajectory, oldest):
            continue
        prompt = trajectory.steps[0].prompt_ids
        if prompt not in roots:
            segment = row.open_segment(parent=-1, predecessor=-1, depth=0)
            row.add_context(prompt)
            roots[prompt] = (segment, len(row.ids) - 1)
        root, last = roots[prompt]
        row.open_segment(parent=root, predecessor=last, depth=len(prompt))
        for number, step in enumerate(trajectory.steps):
            if number:
                row.add_context(step.prompt_ids)
            row.add_sampled(step.output_ids, step.logprobs, step.versions, advantage)
    if not roots:
        raise ValueError("a row needs at least one trajectory with a token to train")
    return row.build()


@dataclass
class _RowBuilder:
    oldest: PolicyVersion = 0
    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    segment_parents: list[int] = field(default_factory=list)
    predecessors: list[int] = field(default_factory=list)
    loss_mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    _predecessor: int = -1
    _depth: int = 0

    def open_segment(self, *, parent: int, predecessor: int, depth: int) -> int:
        self.segment_parents.append(parent)
        self._predecessor, self._depth = predecessor, depth
        return len(self.segment_parents) - 1

    def add_context(self, ids: Sequence[int]) -> None:
        for token in ids:
            self._add(token, mask=False, logprob=0.0, version=-1, advantage=0.0)

    def add_sampled(
        self, ids: Sequence[int], logprobs: Sequence[float], versions: Sequence[int], advantage: float
    ) -> None:
        for token, logprob, version in zip(ids, logprobs, versions, strict=True):
            if version < self.oldest:
                self._add(token, mask=False, logprob=0.0, version=-1, advantage=0.0)
            else:
                self._add(token, mask=True, logprob=logprob, version=version, advantage=advantage)

    def _add(self, token: int, *, mask: bool, logprob: float, version: int, advantage: float) -> None:
        self.ids.append(token)
        self.positions.append(self._depth)
        self.segments.append(len(self.segment_parents) - 1)
        self.predecessors.append(self._predecessor)
        self.loss_mask.append(mask)
        self.logprobs.append(logprob)
        self.versions.append(version)
        self.advantages.append(advantage)
        self._predecessor = len(self.ids) - 1
        self._depth += 1

    def build(self) -> PackedRow:
        return PackedRow(
            ids=tuple(self.ids),
            positions=tuple(self.positions),
            segments=tuple(self.segments),
            segment_parents=tuple(self.segment_parents),
            predecessors=tuple(self.predecessors),
            loss_mask=tuple(self.loss_mask),
            logprobs=tuple(self.logprobs),
            versions=tuple(self.versions),
            advantages=tuple(self.advantages),
        )
