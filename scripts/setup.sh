#!/bin/sh
# Makes the checkout ready to run: Java 17 or newer for Spark, and .venv with the pinned dependencies
# and Weir itself in editable mode. Does nothing when that is already so.
#
#   PYTHON=...   the interpreter to use (default: the first of python3, python3.13 ... python3.10)
set -eu
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/.setup-done

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() {
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# ---- system packages ---------------------------------------------------------------------------

manager() {
    for tool in apt-get dnf yum apk brew; do
        if command -v "$tool" >/dev/null; then
            echo "$tool"
            return
        fi
    done
    echo none
}

# install_first PACKAGE...: install the first package that the system's package manager has.
install_first() {
    tool=$(manager)
    [ "$tool" = brew ] || can_be_root || return 1
    [ "$tool" != apt-get ] || as_root apt-get update -qq >/dev/null 2>&1 || true
    for package in "$@"; do
        say "installing $package with $tool"
        case $tool in
            apt-get) as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
                --no-install-recommends "$package" >/dev/null 2>&1 && return ;;
            dnf | yum) as_root "$tool" install -y -q "$package" >/dev/null 2>&1 && return ;;
            apk) as_root apk add -q "$package" >/dev/null 2>&1 && return ;;
            brew) brew install -q "$package" >/dev/null 2>&1 && return ;;
            *) return 1 ;;
        esac
    done
    return 1
}

java_packages() {
    case $(manager) in
        apt-get) echo openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless ;;
        dnf | yum) echo java-17-openjdk-headless java-21-openjdk-headless \
            java-17-amazon-corretto-headless java-latest-openjdk-headless ;;
        apk) echo openjdk17-jre-headless openjdk21-jre-headless ;;
        brew) echo openjdk@17 openjdk@21 ;;
    esac
}

java_command() {
    case $(manager) in
        apt-get) echo "sudo apt-get install openjdk-17-jre-headless" ;;
        dnf) echo "sudo dnf install java-21-openjdk-headless" ;;
        yum) echo "sudo yum install java-17-openjdk-headless" ;;
        apk) echo "apk add openjdk17-jre-headless" ;;
        brew) echo "brew install openjdk@17" ;;
        *) echo "install a Java 17 runtime and set JAVA_HOME to its directory" ;;
    esac
}

ensure_java() {
    if ! home=$(sh scripts/java_home.sh); then
        [ -z "${JAVA_HOME:-}" ] ||
            fail "JAVA_HOME=$JAVA_HOME is not a Java 17 or newer, which Spark needs." \
                "Point JAVA_HOME at one, or unset it to let setup look for one."
        # shellcheck disable=SC2046
        install_first $(java_packages) || true
        home=$(sh scripts/java_home.sh) ||
            fail "Spark needs Java 17 or newer and none was found. Install it with:" \
                "    $(java_command)"
    fi
}

# Kafka's jars come by Maven, PostgreSQL from the system: for tests, so on machines of CI only.
ensure_servers() {
    [ "${CI:-}" = true ] || return 0
    command -v mvn >/dev/null || install_first maven || true
    [ -n "$(ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null)" ] || command -v initdb >/dev/null ||
        install_first postgresql postgresql-server || true
}

# ---- Python ------------------------------------------------------------------------------------

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }
series() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

find_python() { # sets $python: recent, and able to make virtual environments if any candidate is
    python=
    if [ -n "${PYTHON:-}" ]; then
        is_recent "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.10 or newer."
        python=$PYTHON
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
        is_recent "$candidate" || continue
        [ -n "$python" ] || python=$candidate
        if has_venv "$candidate"; then
            python=$candidate
            return
        fi
    done
    [ -n "$python" ] ||
        fail "Weir needs Python 3.10 or newer; neither python3 nor python3.13 ... python3.10 is one." \
            "Install one, or name it: make setup PYTHON=/path/to/python"
}

usable_venv() {
    is_recent $venv/bin/python || return 1
    [ -z "${PYTHON:-}" ] || [ "$(series "$PYTHON")" = "$(series $venv/bin/python)" ] || return 1
    # The script, not the module: its first line names the directory the environment was made in.
    $venv/bin/pip --version >/dev/null 2>&1
}

make_venv() {
    find_python
    if ! has_venv "$python"; then
        if [ "$(manager)" = apt-get ]; then
            install_first "python$(series "$python")-venv" python3-venv || true
        fi
        has_venv "$python" ||
            fail "$python cannot make virtual environments: its ensurepip module is missing." \
                "On Debian and Ubuntu: sudo apt-get install python$(series "$python")-venv"
    fi
    say "making $venv with Python $(series "$python")"
    "$python" -m venv --clear $venv
}

install_packages() {
    say "installing the pinned dependencies (pyspark is large: about a minute)"
    pip="$venv/bin/python -m pip --disable-pip-version-check -q"
    # pyspark comes as source; --use-pep517 builds it the same way with old and new versions of pip.
    $pip install --use-pep517 -r requirements.lock
    # hatchling is pinned in the lock as well, so the build needs no second environment.
    $pip install --no-deps --no-build-isolation -e .
    # pip compiles what it installs, and not what stays here; every slot and worker imports it.
    $venv/bin/python -m compileall -q src
}

# The directory is part of the key: a virtual environment does not survive being moved.
key="$(pwd) $(cat pyproject.toml requirements.lock | cksum)"
ensure_java
ensure_servers
if [ "$(cat $stamp 2>/dev/null)" = "$key" ] && { [ -z "${PYTHON:-}" ] || usable_venv; }; then
    exit 0
fi
rm -f $stamp
usable_venv || make_venv
install_packages
printf '%s\n' "$key" >$stamp
say "ready: Python $(series $venv/bin/python), Java at $home"
case ${JAVA_HOME:-$(command -v java || true)} in
    "") say "java is not on the PATH; outside of make: export JAVA_HOME=$home" ;;
esac
