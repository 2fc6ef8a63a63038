-- History: marks for changes that were made to the service.

-- Most marks kept.
local MARKS = 1000

local function mark(kind, text)
  call('XADD', keys.MARKS, 'MAXLEN', '~', MARKS, '*', 'kind', kind, 'text', text)
  call('HINCRBY', keys.METRICS, 'corelane_marks_total|' .. kind, 1)
end
