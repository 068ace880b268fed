# What documents show, for scripts that do it as it stands there. Sourced.
# shellcheck shell=bash

# block LANGUAGE TEXT FILE…: the first block of code of this language that has TEXT. Fails where there is none.
block() {
  local language=$1 text=$2
  shift 2
  awk -v fence="\`\`\`$language" -v text="$text" '
    inside && /^```$/ { inside = 0; if (index(code, text)) { printf "%s", code; found = 1; exit } }
    inside { code = code $0 "\n" }
    $0 == fence { inside = 1; code = "" }
    END { exit !found }' "$@" || {
    printf 'no block of %s in %s has "%s"\n' "$language" "$*" "$text" >&2
    return 1
  }
}

# command_in PATTERN FILE…: the first command that the pattern (of awk's) matches from its beginning on: a line of code, or
# code in a sentence. A prompt is left out. Fails where there is none.
command_in() {
  local pattern=$1
  shift
  awk -v pattern="^($pattern)" '
    function give(command) { if (command ~ pattern) { print command; found = 1; exit } }
    /^```/ { inside = !inside; next }
    inside || /^    / { sub(/^ *(\$ )?/, ""); give($0); next }
    { count = split($0, parts, "`"); for (i = 2; i <= count; i += 2) give(parts[i]) }
    END { exit !found }' "$@" || {
    printf 'no command in %s begins with %s\n' "$*" "$pattern" >&2
    return 1
  }
}
