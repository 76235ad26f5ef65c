-- Lua at work: tables of tables, strings, closures, a garbage collector that comes round often.
-- Prints the same line in each round; `scripts.rs` knows which. Takes the number of rounds.

local state = 1
local function random(below)
    state = (state * 1103515245 + 12345) % 2147483648
    return (state >> 8) % below
end

-- A tree of small tables, of which a part is replaced again and again.
local function tree(depth)
    if depth == 0 then return { value = random(1000) } end
    return { left = tree(depth - 1), right = tree(depth - 1), value = depth }
end

local function sum(node)
    if not node.left then return node.value end
    return sum(node.left) + sum(node.right) + node.value
end

local function trees()
    local whole = tree(16)
    for _ = 1, 150 do
        local node = whole
        for _ = 1, 7 do node = random(2) == 0 and node.left or node.right end
        node.left = tree(8)
    end
    return sum(whole)
end

-- Words made, counted in a table, sorted, joined.
local function words()
    local count, list = {}, {}
    for _ = 1, 40000 do
        local word = string.rep(string.char(97 + random(26)), 1 + random(50)) .. random(400)
        if not count[word] then
            count[word] = 0
            list[#list + 1] = word
        end
        count[word] = count[word] + 1
    end
    table.sort(list)
    local text = table.concat(list, ' ')
    local found = 0
    for word in text:gmatch('%a+') do found = found + #word end
    return #list, #text, found
end

-- A queue of closures, each of which holds a table of its own.
local function closures()
    local queue, total = {}, 0
    for i = 1, 60000 do
        local own = { i, random(10), tostring(i) }
        queue[#queue + 1] = function() return own[1] % 7 + own[2] + #own[3] end
        if #queue == 5000 then
            for _, call in ipairs(queue) do total = total + call() end
            queue = {}
        end
    end
    return total
end

for _ = 1, tonumber(arg[1]) do
    state = 1
    print(trees(), words())
    print(closures())
end
