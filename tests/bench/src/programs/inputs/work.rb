# Ruby at work: objects, strings, hashes, arrays that grow, and its collector.
# Prints the same line in each round; `scripts.rs` knows which. Takes the number of rounds.

# Random numbers that depend on nothing but how often they were asked for.
class Dice
  def initialize
    @state = 1
  end

  def roll(below)
    @state = (@state * 1103515245 + 12345) % 2147483648
    (@state >> 8) % below
  end
end

Item = Struct.new(:name, :worth, :tags, :note)

# Records with strings too long to live in the object itself.
def items(dice, count)
  Array.new(count) do |number|
    tags = Array.new(1 + dice.roll(6)) { "tag number #{dice.roll(40)} of an item, spelled out" }
    Item.new("item #{number} " + 'x' * dice.roll(80), dice.roll(1000), tags, { weight: dice.roll(9), at: "shelf #{dice.roll(100)}" })
  end
end

# How often each tag occurs, and what its items are worth.
def grouped(items)
  groups = Hash.new { |hash, tag| hash[tag] = [] }
  items.each { |item| item.tags.each { |tag| groups[tag] << item } }
  groups.transform_values { |list| list.sum(&:worth) }
end

# A text put together, split, counted and changed.
def text(items)
  whole = +''
  items.each { |item| whole << item.name << ' ' << item.note[:at] << "\n" }
  words = whole.split(/\s+/)
  counted = words.tally
  upper = whole.lines.map(&:upcase).select { |line| line.include?('7') }
  [whole.size, words.size, counted.size, upper.sum(&:size)]
end

# Items come and go, so that the heap has holes.
def changes(items, dice)
  10_000.times { items[dice.roll(items.size)] = items(dice, 1)[0] }
  items.sum { |item| item.name.size }
end

ARGV[0].to_i.times do
  dice = Dice.new
  items = items(dice, 12_000)
  worth = grouped(items)
  puts [worth.size, worth.values.sum, *text(items), changes(items, dice)].join(' ')
end
