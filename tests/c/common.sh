# What tests/c/run, tests/cpp/run and tests/examples share: compiling, running
# with a limit, running under valgrind. To be sourced at the project's top.

warnings=(-Wall -Wextra -pedantic -Werror)
link=(-Ltarget/release -ldlease -Wl,-rpath,"$PWD/target/release" -pthread)
# For programs that load the library by themselves.
export DLEASE_LIBRARY=$PWD/target/release/libdlease.so

if [ -z "${DLEASE_TEST_URLS:-}" ]; then
	echo "DLEASE_TEST_URLS names no server: run 'make test'" >&2
	exit 1
fi

passed=0
fail() {
	echo "FAILED: $*" >&2
	exit 1
}

# run NAME COMMAND...: the command must end well, within two minutes.
run() {
	local name=$1 status=0
	shift
	timeout 120 "$@" || status=$?
	((status == 0)) || fail "$name: exit status $status of ${1##*/}"
	passed=$((passed + 1))
}

# memcheck NAME COMMAND...: the same under valgrind: no error, and no leak.
# A server's URL should have tls=off: memcheck does not understand ring's
# assembly, and takes what it decrypts for uninitialised.
memcheck() {
	local name=$1
	shift
	DLEASE_SLOW=1 run "$name under valgrind" valgrind --quiet --error-exitcode=9 \
		--suppressions=tests/c/valgrind.supp --leak-check="${LEAKS:-full}" \
		--errors-for-leak-kinds=definite --show-leak-kinds=definite "$@"
}

# The URL without its login: a name for people.
place_of() { echo "${1##*@}"; }

# with URL OPTION: the URL with one more option.
with() {
	case $1 in
	*\?*) echo "$1&$2" ;;
	*) echo "$1?$2" ;;
	esac
}

now_ms() {
	local now=${EPOCHREALTIME/[.,]/}
	echo $((now / 1000))
}

# begin COMMAND...: runs it in the background, to talk to by told and tell.
begin() {
	coproc program { exec "$@"; }
	program_id=$program_PID
	exec {from_program}<&"${program[0]}" {to_program}>&"${program[1]}"
}

# told WORD: the program's next line is this, within half a minute.
told() {
	local line=
	read -t 30 -r line <&"$from_program" || fail "the program said nothing"
	[ "$line" = "$1" ] || fail "the program said '$line', not '$1'"
}

tell() { echo "$1" >&"$to_program"; }

# ended STATUS: the program has this exit status.
ended() {
	local status=0
	wait "$program_id" || status=$?
	exec {from_program}<&- {to_program}>&-
	((status == $1)) || fail "the program ended with $status, not $1"
	passed=$((passed + 1))
}
