-- Who is next. Pure: these functions decide from what they are given, and read and write nothing.
--
-- 1. High priority goes before normal, normal before low; every eighth claim of a core begins with the lowest.
-- 2. Within a priority the owner who was served the fewest tokens is next.
-- 3. Within an owner it is the oldest small job, up to eight tokens of these for each one of the larger jobs; then the larger
--    job that was served the fewest tokens.

local HIGHEST_FIRST, LOWEST_FIRST = { 0, 1, 2 }, { 2, 1, 0 }

-- The order of priorities in a core's claim of this number.
function pick.priorities(turn) return turn % LOW_TURN == 0 and LOWEST_FIRST or HIGHEST_FIRST end

-- Whether a claim takes one more stretch: up to its room, to `most` stretches, and beside cores without work to its part of
-- what waits (`part`), by whole stretches: the next one only if half of one as large as the last fits.
function pick.has_room(claim, spare, most)
  if claim.tokens >= spare or claim.taken >= most then return false end
  return not claim.part or claim.taken == 0 or claim.tokens + claim.last / 2 <= claim.part
end

-- Which of an owner's jobs a core may take, `line` being the owner and priority: → small ones, larger ones. Within its room
-- all; beyond that only those of which it holds none (`met`), so that a newcomer waits for no backlog, not even for its own.
function pick.may_take(claim, line)
  local is_free = claim.tokens < claim.room
  return is_free or not claim.met[line .. ':small'], is_free or not claim.met[line]
end

-- Note what a core holds now of an owner: a slice of a larger job, or as many tokens of small ones as a batch can hold.
function pick.note_met(met, line, kind, small_tokens)
  if kind == 'larger' then met[line] = true end
  if small_tokens >= BESIDE_TOKENS then met[line .. ':small'] = true end
end

-- Whether small jobs go before larger ones. `charged` is what they were charged beside larger ones, an eighth of their tokens;
-- `level` is what the larger job was served that was served least.
function pick.small_first(charged, level) return not (charged and level) or charged <= level end

-- The next of an owner's jobs for a version: {small, larger: the first ref of each kind that may be taken, or nil; charged,
-- level} → its kind and ref, nil if there is none
function pick.next(waiting)
  local small, larger = waiting.small, waiting.larger
  if small and (not larger or pick.small_first(waiting.charged, waiting.level)) then return 'small', small end
  if larger then return 'larger', larger end
end

-- What small jobs are charged after one of them was served `tokens`.
function pick.small_charge(waiting, tokens) return (waiting.charged or waiting.level) + tokens / SMALL_WEIGHT end
