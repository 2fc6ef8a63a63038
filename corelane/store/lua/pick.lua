-- Which job is next. Pure: these functions decide from their arguments, and read and write nothing.
-- 1. High priority goes before normal, normal before low; every eighth claim of a core begins with the lowest.
-- 2. Within a priority the owner who was served the fewest tokens for its share is next.
-- 3. Within an owner the oldest small job is next, up to eight tokens of small jobs for each token of the larger jobs.
-- Then the larger job that was served the fewest tokens is next.

local HIGHEST_FIRST, LOWEST_FIRST = { 0, 1, 2 }, { 2, 1, 0 }

-- The order of priorities for a core's claim number `turn`.
function pick.priorities(turn) return turn % LOW_TURN == 0 and LOWEST_FIRST or HIGHEST_FIRST end

-- Whether a claim takes one more slice. It stops at its room and at `most` slices. Beside idle cores it also stops
-- at its `part` of the waiting work: the next slice is taken only if half of one as large as the last fits.
function pick.has_room(claim, spare, most)
  if claim.tokens >= spare or claim.taken >= most then return false end
  return not claim.part or claim.taken == 0 or claim.tokens + claim.last / 2 <= claim.part
end

-- Which of an owner's jobs a core may take; `line` is the owner and priority. → small ones, larger ones
-- Within its room it may take all. Beyond that it may take only a kind of which it holds none (`met`), so that a
-- newcomer waits for no backlog, not even its own.
function pick.may_take(claim, line)
  local is_free = claim.tokens < claim.room
  return is_free or not claim.met[line .. ':small'], is_free or not claim.met[line]
end

-- Note what a core now holds of an owner: a slice of a larger job, or a batch's worth of small jobs.
function pick.note_met(met, line, kind, small_tokens)
  if kind == 'larger' then met[line] = true end
  if small_tokens >= BESIDE_TOKENS then met[line .. ':small'] = true end
end

-- Whether small jobs go before larger ones. `charged` is what they were charged while larger jobs waited, an eighth of
-- their tokens; `level` is what the least served larger job was served.
function pick.small_first(charged, level) return not (charged and level) or charged <= level end

-- The next of an owner's jobs for a version. `waiting` is {small, larger: the first ref of each kind that may be taken,
-- or nil; charged, level}. → its kind and ref, nil if there is none
function pick.next(waiting)
  local small, larger = waiting.small, waiting.larger
  if small and (not larger or pick.small_first(waiting.charged, waiting.level)) then return 'small', small end
  if larger then return 'larger', larger end
end

-- The new charge of the small jobs after one of them was served `tokens`.
function pick.small_charge(waiting, tokens) return (waiting.charged or waiting.level) + tokens / SMALL_WEIGHT end
