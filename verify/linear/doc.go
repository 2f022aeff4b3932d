// Package linear checks that what several clients saw of a queue could have been seen of its
// textbook version, which does one call after another: that a history of calls is
// linearizable. It holds the models, how calls are recorded, and how a history that fails is
// cut short and drawn. Its tests run on real threads; those of package schedules use it too.
//
// # Calls that are more than one step
//
// A model does each call in one step, somewhere between call and return. A Drain that waits,
// and a Pop, are two: a Drain closes the queue, and later sees it idle, is released or gives
// up; a Pop takes, and later says what became of it. Each is recorded as two operations.
//
// # Time
//
// What comes due does so by itself. So each wait that can have come due is an operation too,
// Due, that no client called. It begins at the earliest moment that the wait can end: its
// delay after the call of AddAfter or Reschedule, for no earlier reading of the clock could
// have been used. It has no upper end, as a timer may be late; where the clock is a bubble's,
// which knows how late, it has one. Two waits whose due times must differ, because the one call
// had returned before the other began or because the delays differ by more, become due in that
// order (T3). A wait that has been ended meanwhile makes a Due that does nothing. Of several
// delays of one item the earliest wins (T1), and which one that is may hang on when exactly the
// clock was read: so the wait ends with whichever Due comes first, and the others then do
// nothing. This is sound: put the Due of the delay that won where the timer fired, which is never
// before it begins, and each other one right behind it or behind its own beginning. And
// it is strict enough to see a timer that fires early, or out of order, or a wait that survives
// its end.
//
// TYPEDQUEUE_HISTORIES=100000 go test -race -timeout 1h ./linear looks at more histories of each
// kind than usual. With -artifacts -outputdir, the page that shows a failing one goes there.
package linear
