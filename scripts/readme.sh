# Code and commands from documents, for scripts that run them verbatim. Sourced.
# shellcheck shell=bash

# block LANGUAGE TEXT FILE…: prints the first code block of this language that contains TEXT. Fails if there is none.
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

# command_in PATTERN FILE…: prints the first command whose beginning matches the awk pattern: a line of code, or code
# in a sentence. Prompts are removed. Fails if there is none.
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
