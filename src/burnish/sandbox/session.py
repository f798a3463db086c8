"""A shell that remembers: working directory, exported variables, functions and umask pass from one line to the next.

Between two lines no process lives. What the shell knew lies in a file of the sandbox, so that it survives snapshots,
forks and returns like any other file. The file is the candidate's, as is the shell; neither is trusted with anything.
"""

from burnish.sandbox.base import ExecResult, SandboxBox

STATE_FILE = "/home/agent/.shell-session"

# $1 is the line, $2 the file. The state is written by a trap, so that `exit 3` in the line leaves one too; first aside,
# so that a line which is killed leaves the one before.
_SCRIPT = r"""
_burnish_save() {
  local code=$?
  { declare -px; declare -f; umask -p; printf 'cd -- %q 2>/dev/null\n' "$PWD"; } > "$_burnish_state.new" &&
    mv -f -- "$_burnish_state.new" "$_burnish_state"
  exit $code
}
_burnish_line=$1
_burnish_state=$2
[ -r "$_burnish_state" ] && . "$_burnish_state"
set --
trap _burnish_save EXIT
eval "$_burnish_line"
"""


class ShellSession:
    """bash in a sandbox, one line after another. Not for lines that overlap: the last one to end wins.

    A line that replaces the shell (`exec`), sets a trap on EXIT or is killed changes nothing for the next.

    Example:
        shell = ShellSession(box)
        await shell.run("cd project && export DEBUG=1")
        result = await shell.run("pwd; echo $DEBUG")
    """

    def __init__(self, box: SandboxBox, *, state_file: str = STATE_FILE) -> None:
        """Two sessions of one sandbox need two files. A fork's session is `ShellSession(fork)`."""
        self._box, self._state_file = box, state_file

    async def run(self, line: str, *, stdin: bytes = b"", timeout_s: float | None = None) -> ExecResult:
        """Runs a line of bash; see `Commands.run`. Exit code 127 where the sandbox has no bash."""
        argv = ["/bin/bash", "--noprofile", "--norc", "-c", _SCRIPT, "bash", line, self._state_file]
        return await self._box.commands.run(argv, stdin=stdin, timeout_s=timeout_s)
