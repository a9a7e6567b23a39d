#!/bin/sh
# Prints the home of the Java that Spark is to use (17 or newer) and fails if there is none.
# JAVA_HOME, when set, is the user's choice and the only candidate: Spark itself would use it too.
set -u
oldest=17

accept() { # accept BINARY: print its home if it is new enough
    [ -x "$1" ] || return 1
    about=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    version=$(printf '%s\n' "$about" | sed -n 's/^ *java\.specification\.version = //p')
    home=$(printf '%s\n' "$about" | sed -n 's/^ *java\.home = //p')
    [ "${version%%.*}" -ge "$oldest" ] 2>/dev/null || return 1
    printf '%s\n' "$home"
}

if [ -n "${JAVA_HOME:-}" ]; then
    accept "$JAVA_HOME/bin/java"
    exit
fi
for java in "$(command -v java)" /usr/lib/jvm/*/bin/java /opt/homebrew/opt/openjdk*/bin/java \
    /usr/local/opt/openjdk*/bin/java /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java; do
    accept "$java" && exit 0
done
exit 1
