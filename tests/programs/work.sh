# Bash at work: arrays, associative arrays, growing strings, command substitution, pipes, background jobs, here documents.
# Prints one line; the test `bash` in tests/tests/programs.rs knows what it must be.
set -euo pipefail

# The sum of the primes below 20000, by a sieve in an array.
limit=20000 sum=0
declare -a crossed
for ((i = 2; i < limit; i++)); do
    [[ -n ${crossed[i]:-} ]] && continue
    ((sum += i))
    for ((j = i * i; j < limit; j += i)); do crossed[j]=1; done
done

# A string that grows piece by piece, then shrinks again.
text=
for ((i = 0; i < 5000; i++)); do text+="word$((i % 100)) "; done
short=${text//word/}

# How often each word occurs: an associative array.
declare -A count
for word in $text; do count[$word]=$((${count[$word]:-0} + 1)); done

# Forks: command substitution, pipes, jobs that are waited for.
lines=0
for ((i = 0; i < 40; i++)); do
    part=$(printf '%s\n' "${!count[@]}" | sort -n | wc -l)
    ((lines += part))
done
for ((i = 0; i < 20; i++)); do
    (local_text=$text$text; [[ ${#local_text} -eq $((2 * ${#text})) ]]) &
done
wait

read -r -d '' document <<END || true
${text:0:40}
END

echo "$sum ${#text} ${#short} ${#count[@]} ${count[word7]} $lines ${#document}"
