# Perl at work: hashes of arrays, regular expressions, sorting, strings that grow, children over pipes.
# Prints one line; the test `perl` in tests/tests/programs.rs knows what it must be.
use strict;
use warnings;

# Words by their length, out of a text that grows.
my ($text, $state) = ('', 1);
for (1 .. 200000) {
    $state = ($state * 1103515245 + 12345) % 2147483648;
    $text .= ('a' .. 'z')[$state >> 16 & 15] x (1 + ($state >> 20 & 7)) . ' ';
}
my %by_length;
push @{ $by_length{length $1} }, $1 while $text =~ /(\w+)/g;
my $words = 0;
$words += scalar @$_ for values %by_length;

# Substitution over the whole text, then sorted distinct words.
(my $upper = $text) =~ s/(\w+)/\U$1/g;
my %seen = map { $_ => 1 } split ' ', $upper;
my @sorted = sort { length $a <=> length $b or $a cmp $b } keys %seen;

# Four children, each answering over a pipe.
my $answers = 0;
for my $child (1 .. 4) {
    my $pid = open(my $pipe, '-|') // die "no child: $!";
    if ($pid == 0) {
        my @list = map { "$child:$_" } 1 .. 5000;
        print scalar(grep { /7/ } @list), "\n";
        exit 0;
    }
    chomp(my $line = <$pipe>);
    $answers += $line;
    close $pipe or die "child $child failed";
}

print join(' ', $words, scalar @sorted, $sorted[0], $sorted[-1], $answers), "\n";
