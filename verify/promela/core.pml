/*
 * A model of the core of queue.go, with the timer of delaying.go: who may hold an item, who
 * sleeps, who is woken. Spin looks at every interleaving of it; see promela_test.go for how
 * it is run, and for the faults that it is shown to find (the macros that begin with FAULT_).
 *
 * How to audit it. All shared state of the Go code is guarded by core.mu, so whatever happens
 * between Lock and Unlock is one step: here one d_step, with a comment that names the methods
 * whose section it is. The inlines are the Go functions of the same names, and the variables
 * its fields:
 *
 *	Go                      here
 *	entry.marks             marks[i]; an item is its number, so the table is the mark INTABLE
 *	core.order, .held       order and its length ordered; held is the length alone
 *	core.waits              waits, its length waiters, and at[i]: a heap, sorted, is a list
 *	core.passed, .closed    passed, closed
 *	core.getters            sleepers, its length asleep, woken; sleeper.wake is token[w]
 *	core.drains             drains: it is not nil; joined[d], released[d]: drain d holds it, it is closed
 *	core.alarm, .timer      alarm; timer, which is the runtime's: what it runs until
 *
 * What is left out: priorities, metrics, ages, the counters, where entries stand (compact),
 * and the contents and the Replace of a FIFO.
 *
 * How it is kept finite, and yet without a bound on calls:
 *
 *  - A call of Add, Cancel and so on is one section and leaves nothing behind in its caller.
 *    So any number of producers are one process, callers, which may make any call at any time,
 *    as often as it likes, until it declares calm. Also a worker that adds its item again
 *    before Done is covered by that.
 *  - Getters and drains may give up (their context is done) at any time and as often as they
 *    like, until calm. A getter that gave up comes again: as another getter, if you like.
 *  - After calm nothing new comes, and all must come to rest with everything handed out.
 *  - Time is how far off things are: AGO (before now), NOW, and up to AHEAD ticks from now.
 *    Who reads the clock and then waits for the lock has an old time: for AddAfter that is
 *    the same as a shorter delay, so that what it adds may be due already; fire chooses
 *    whether its time is old.
 *  - A timer whose time has come may take for ever to fire, and when it has, its function may
 *    take for ever to get the lock. Of such functions at most FIRES are about at once.
 */

#ifndef ITEMS
#define ITEMS 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef DRAINS
#define DRAINS 2
#endif
#ifndef FIRES
#define FIRES 2
#endif
#ifndef AHEAD
#define AHEAD 1
#endif
#ifdef KEEPSPLACE  /* the line of a FIFO: core.keepsPlace */
#define keepsPlace true
#else
#define keepsPlace false
#endif

/* marks */
#define DIRTY 1
#define PROCESSING 2
#define WAITING 4
#define INTABLE 8
#define is(i, m) ((marks[i] & (m)) != 0)
#define set(i, m) marks[i] = marks[i] | (m)
#define clear(i, m) marks[i] = marks[i] & ~(m)

/* times */
#define AGO 0
#define NOW 1
#define STOPPED 255

byte marks[ITEMS];
byte order[ITEMS + 1];  /* room for one too many, so that Q2 can fail */
byte ordered;
byte held;
byte waits[ITEMS];
byte waiters;
byte at[ITEMS];
byte passed;
bool closed;

byte sleepers[WORKERS];
byte asleep;
byte woken;
bool token[WORKERS];

bool drains;
bool joined[DRAINS];
bool released[DRAINS];

byte alarm = STOPPED;
byte timer = STOPPED;
byte fires;  /* functions of the timer that run and have not yet got the lock */

/* where processes are */
#define OUT 0    /* in no call */
#define SLEEP 1  /* worker: in sleep; drain: in the select of Drain */
#define HOLD 2   /* worker: between get and Done */
#define ENDED 3
byte worker[WORKERS];
byte hold[WORKERS];
byte drainer[DRAINS];
bool calm;
bool forced;  /* ShutDown has been called, which releases drains that are not drained */

/*
 * What callers have been promised, told by their calls alone; it is compared with the marks.
 * asked: item i must still be handed out. later: it must still come due.
 */
bool asked[ITEMS];
bool later[ITEMS];

/*
 * Registers, which mean nothing between steps: the rules of the design and of the fields in
 * queue.go, so that pan names the one that breaks; and those of the inlines. Hidden they are
 * part of no state; but a breadth-first search, which finds the shortest way to a fault, bears
 * nothing hidden.
 */
#ifdef BREADTH_FIRST
#define registers byte
#else
#define registers hidden byte
#endif
registers E1, E2, E3, E5, E6, Q2, Q3, Q6, Q7, Q8, Q11, T2, T5;
registers k, n, j, x, y, h;

/* ---- lists ---- */

#define push(list, count, v) list[count] = v; count++

#define unlink(list, count, v) \
	k = 0; \
	do \
	:: list[k] != v -> k++ \
	:: else -> break \
	od; \
	count--; \
	do \
	:: k < count -> list[k] = list[k + 1]; k++ \
	:: else -> break \
	od; \
	list[k] = 0

/* ---- queue.go: sleepers ---- */

#define ready (ordered - passed)
#define idle (ordered == 0 && held == 0)

inline wakeOne() {
	x = sleepers[0];
	unlink(sleepers, asleep, x);
	woken++;
	token[x] = true
}

inline wakeAll() {
	do
	:: asleep > 0 ->
		wakeOne();
#ifdef FAULT_SHUTDOWN_WAKES_ONE
		break
#endif
	:: else -> break
	od
}

inline wake() {
	do
#ifdef FAULT_ONE_WAKE_UP_IS_ENOUGH
	:: asleep > 0 && ready > 0 && woken == 0 -> wakeOne()
#else
	:: asleep > 0 && woken < ready -> wakeOne()
#endif
	:: else -> break
	od
}

inline enter(w) { push(sleepers, asleep, w) }

inline leave(w) {
	if
	:: token[w] -> woken--; token[w] = false
	:: else -> unlink(sleepers, asleep, w)
	fi
}

/* ---- queue.go: drains ---- */

inline releaseDrains() {
	n = 0;
	do
	:: n < DRAINS && joined[n] ->
		joined[n] = false;
		released[n] = true;
		n++;
#ifdef FAULT_ONE_DRAIN_RETURNS
		break
#endif
	:: n < DRAINS && !joined[n] -> n++
	:: else -> break
	od;
	drains = false
}

inline settle() {
	if
#ifdef FAULT_DRAIN_IS_RELEASED_TOO_EARLY
	:: held == 0 -> releaseDrains()
#else
	:: idle -> releaseDrains()
#endif
	:: else
	fi
}

/* ---- queue.go: waiting ---- */

inline disarm() {
	if
	:: alarm != STOPPED -> timer = STOPPED; alarm = STOPPED
	:: else
	fi
}

inline endWait(i) {
	unlink(waits, waiters, i);
	at[i] = 0;
	clear(i, WAITING);
	if
	:: waiters == 0 -> disarm()
	:: else
	fi
}

/* insert is heap.push: equal times first in, first out (T3). */
inline insert(i, due) {
	at[i] = due;
	n = waiters;
	do
	:: n > 0 && at[waits[n - 1]] > due -> waits[n] = waits[n - 1]; n--
	:: else -> break
	od;
	waits[n] = i;
	waiters++
}

inline wait(i, due) {
	if
	:: !is(i, WAITING) -> set(i, WAITING); insert(i, due)
#ifdef FAULT_LATEST_TIME_WINS
	:: is(i, WAITING) && due > at[i] -> unlink(waits, waiters, i); insert(i, due)
#endif
	:: is(i, WAITING) && due < at[i] -> unlink(waits, waiters, i); insert(i, due)  /* heap.move */
	:: else
	fi
}

/* ---- queue.go: dirty and processing ---- */

#define inOrder(i) (is(i, DIRTY) && (keepsPlace || !is(i, PROCESSING)))

inline need(i) { set(i, INTABLE) }

inline release(i) {
	if
	:: !is(i, DIRTY | PROCESSING | WAITING) -> clear(i, INTABLE)
	:: else
	fi
}

inline lineUp(i) {
	push(order, ordered, i);
	wake()
}

inline add(i) {
#ifndef FAULT_ADD_KEEPS_WAIT
	if
	:: is(i, WAITING) -> endWait(i)
	:: else
	fi;
#endif
	if
#ifdef FAULT_ADD_QUEUES_WHAT_IS_READY
	:: inOrder(i) -> push(order, ordered, i)
#endif
	:: is(i, DIRTY)
	:: !is(i, DIRTY) && !is(i, PROCESSING) -> set(i, DIRTY); lineUp(i)
	:: else ->
		set(i, DIRTY);
		if
#ifdef FAULT_ADD_QUEUES_WHAT_IS_PROCESSING
		:: !keepsPlace -> lineUp(i)
#endif
		:: keepsPlace -> held--; push(order, ordered, i); passed++
		:: else
		fi
	fi
}

/* get hands the first ready item to worker w. */
inline get(w) {
	h = 0;
	do
	:: passed > 0 && is(order[h], PROCESSING) -> h++  /* passOver */
	:: else -> break
	od;
#ifdef FAULT_GET_TAKES_THE_NEWEST
	h = ordered - 1;
#endif
	y = order[h];
	j = 0;
	do
	:: j < WORKERS -> Q3 = !(worker[j] == HOLD && hold[j] == y); assert(Q3); j++
	:: else -> break
	od;
	T2 = asked[y]; assert(T2);
	asked[y] = false;
#ifndef FAULT_GET_LEAVES_ITEM_IN_LINE
	unlink(order, ordered, y);
#endif
	held++;
	marks[y] = marks[y] ^ (DIRTY | PROCESSING);
	worker[w] = HOLD;
	hold[w] = y
}

inline done(i) {
	clear(i, PROCESSING);
	if
	:: is(i, DIRTY) && keepsPlace ->
		passed--;
#ifndef FAULT_DONE_WAKES_NOBODY
		wake()
#endif
	:: else ->
		held--;
		if
		:: is(i, DIRTY) -> lineUp(i)
		:: !is(i, DIRTY) && !is(i, WAITING) -> clear(i, INTABLE)
		:: else
		fi;
		settle()
	fi
}

inline cancel(i) {
	if
	:: is(i, WAITING) -> endWait(i)
	:: else
	fi;
	if
	:: inOrder(i) ->
		unlink(order, ordered, i);
		if
		:: is(i, PROCESSING) ->
#ifndef FAULT_CANCEL_FORGETS_PASSED
			passed--;
#endif
			held++
		:: else
		fi
	:: else
	fi;
	clear(i, DIRTY);
	release(i)
}

inline shutDown() {
	closed = true;
	do
	:: waiters > 0 ->
		y = waits[0];
		unlink(waits, waiters, y);
		at[y] = 0;
		later[y] = false;
#ifndef FAULT_SHUTDOWN_KEEPS_WAITING
		clear(y, WAITING);
#endif
#ifndef FAULT_SHUTDOWN_FORGETS_ENTRY
		release(y)
#endif
	:: else -> break
	od;
	disarm();
	settle();
	wakeAll()
}

/* ---- delaying.go ---- */

inline arm() {
	if
#ifdef FAULT_ARM_KEEPS_ALARM
	:: waiters > 0 && alarm == STOPPED ->
#else
	:: waiters > 0 && (alarm == STOPPED || alarm > at[waits[0]]) ->
#endif
		alarm = at[waits[0]];
		timer = alarm  /* Go's runs longer by as much as its time was old; but any timer may be late */
	:: else
	fi
}

/* dueBy makes ready what is due; now is AGO if the clock was read some time ago. */
inline dueBy(now) {
	do
	:: waiters > 0 && at[waits[0]] <= now ->
		y = waits[0];
		T2 = later[y]; assert(T2);
		later[y] = false;
		asked[y] = true;
#ifdef FAULT_DUE_IS_DROPPED_WHILE_PROCESSING
		if
		:: is(y, PROCESSING) -> endWait(y)
		:: else -> add(y)
		fi;
#else
#ifdef FAULT_ADD_KEEPS_WAIT
		endWait(y);  /* only an Add before that time forgets it */
#endif
		add(y);
#endif
		T2 = is(y, DIRTY) && !is(y, WAITING); assert(T2)
	:: else -> break
	od
}

inline fire(now) {
	fires--;
#ifndef FAULT_FIRE_KEEPS_ALARM
	alarm = STOPPED;
#endif
	dueBy(now);
	arm()
}

/*
 * check is what holds whenever the lock is free. With PROMISES_ONLY it leaves out what the
 * data structures promise each other, so that a fault is seen only by what it does to callers.
 */
inline check() {
	/* E6: an alarm is set exactly while something waits, for its time or earlier; and it will
	 * be heeded: the timer runs for it, or has fired and its function is on its way. */
	E6 = (waiters > 0) == (alarm != STOPPED); assert(E6);
	if
	:: waiters > 0 ->
		E6 = alarm <= at[waits[0]] && (timer == alarm || fires > 0); assert(E6)
	:: else ->
		/* It is not true that then the timer never runs: STRICT_E6 claims it. What it was set
		 * for may be taken by a function that was on its way already, and it is left running.
		 * It fires for nothing, as soon as it can. */
#ifdef STRICT_E6
		E6 = timer == STOPPED; assert(E6);
#endif
		E6 = timer == STOPPED || timer <= NOW; assert(E6)
	fi;
	n = 0; h = 0; y = 0;
	do
	:: n < ITEMS ->
		/* T5: once closed, nothing waits. */
		T5 = !(closed && is(n, WAITING)); assert(T5);
		/* Q6: once closed, nothing new is accepted. */
		Q6 = !(closed && is(n, DIRTY) && !asked[n]); assert(Q6);
		/* Q2, E2: in order are the ready (in a FIFO all the dirty), each once. */
		j = 0; x = 0;
		do
		:: j < ordered -> x = x + (order[j] == n); j++
		:: else -> break
		od;
		Q2 = x <= 1; assert(Q2);
#ifndef PROMISES_ONLY
		E2 = x == inOrder(n); assert(E2);
		/* E1 */
		E1 = is(n, INTABLE) == is(n, DIRTY | PROCESSING | WAITING); assert(E1);
		/* T2: waiting is what an AddAfter began, and no Add, due time or Cancel has ended. */
		T2 = later[n] == is(n, WAITING); assert(T2);
		/* Q11: what was accepted is there, until it is handed out or taken back. */
		Q11 = asked[n] == is(n, DIRTY); assert(Q11);
#endif
		h = h + (is(n, PROCESSING) && !inOrder(n));
		y = y + (is(n, PROCESSING) && inOrder(n));
		n++
	:: else -> break
	od;
#ifndef PROMISES_ONLY
	E3 = held == h; assert(E3);
	E5 = passed == y; assert(E5);
#endif
	/* Q8: no getter sleeps while there is an item that nobody is on his way for. */
	Q8 = asleep == 0 || woken >= ready; assert(Q8);
	/* Q6: once closed, nobody sleeps; all have been woken. */
	Q6 = !closed || asleep == 0; assert(Q6);
	/* Q7: nobody waits for what has come already, or on a channel that nobody will close. */
	n = 0;
	do
	:: n < DRAINS ->
		Q7 = !(drainer[n] == SLEEP && !released[n]) || joined[n] && drains && !idle; assert(Q7);
		n++
	:: else -> break
	od;
	n = 0
}

/* mustBeDrained: what a drain tells is true. It counts hands and promises, no marks. */
inline mustBeDrained() {
	n = 0;
	do
	:: n < ITEMS -> Q7 = !asked[n]; assert(Q7); n++
	:: else -> break
	od;
	n = 0;
	do
	:: n < WORKERS -> Q7 = worker[n] != HOLD; assert(Q7); n++
	:: else -> break
	od
}

/* ---- processes ---- */

/* await is the loop of core.await, from taking the lock to handOut (pop in a FIFO), to the end,
 * or to giving the lock up in core.sleep. */
inline await(w) {
	if
	:: ready > 0 -> get(w)
	:: ready == 0 && closed -> worker[w] = ENDED
	:: else -> enter(w); worker[w] = SLEEP
	fi
}

#ifdef FAULT_DRAIN_WAITS_FOR_PROCESSING_ONLY
#define drained (held == 0)
#else
#define drained idle
#endif

proctype workers(byte w) {
end:	do
	/* queue.take; line.pop: up to handing out, or asleep */
	:: d_step { worker[w] == OUT -> await(w); check() }
	/* core.sleep, woken: from the lock in its defer on, round the loop of await */
	:: d_step { worker[w] == SLEEP && token[w] -> leave(w); await(w); check() }
	/* core.sleep, its context done or in a panic, woken at the same time or not: from the lock
	 * on. The getter comes again in another section, which stands for any other getter too. */
	:: d_step { worker[w] == SLEEP && !calm ->
		leave(w);
#ifndef FAULT_WAKE_UP_LOST_ON_CANCEL
		wake();
#endif
		worker[w] = OUT;
		check() }
	/* queue.Done; line.processed, not requeued */
	:: d_step { worker[w] == HOLD ->
		worker[w] = OUT;
		done(hold[w]);
		hold[w] = 0;
		check() }
#ifdef KEEPSPLACE
	/* line.processed, requeued: FIFO.finish, and done */
	:: d_step { worker[w] == HOLD && !calm ->
		worker[w] = OUT;
		asked[hold[w]] = true;
		add(hold[w]);
		done(hold[w]);
		hold[w] = 0;
		check() }
#endif
	:: worker[w] == ENDED -> break
	od
}

proctype drainers(byte d) {
end:	do
	/* queue.Drain, up to its select */
	:: d_step { drainer[d] == OUT && !calm ->
		shutDown();
		if
		:: drained -> mustBeDrained()
		:: else -> drains = true; joined[d] = true; drainer[d] = SLEEP
		fi;
		check() }
	/* queue.Drain from its second lock on: released */
	:: d_step { drainer[d] == SLEEP && released[d] ->
		released[d] = false;
		drainer[d] = OUT;
		if
		:: drained -> mustBeDrained()
		:: else -> Q7 = forced; assert(Q7)  /* ErrShutDown */
		fi;
		check() }
	/* the same, its context done */
	:: d_step { drainer[d] == SLEEP && !calm ->
		joined[d] = false;
		released[d] = false;
		drainer[d] = OUT;
		check() }
	:: drainer[d] == OUT -> break  /* and comes no more, or never came */
	od
}

#ifdef FAULT_ADD_AFTER_SHUTDOWN
#define accepts true
#else
#define accepts !closed
#endif

/* Any number of goroutines that call: see the top. Each d_step is one call. */
proctype callers() {
	byte i, due;
	do
	:: calm = true; break
	:: d_step { true -> shutDown(); releaseDrains(); forced = true; check() }  /* queue.ShutDown; line.Close */
	:: atomic { true ->
		select(i : 0 .. ITEMS - 1);
		if
		/* queue.Add, FIFO.Add; AddAfter and Reschedule with no delay are this too, or Cancel and this */
		:: d_step { accepts ->
			if
			:: !closed -> asked[i] = true; later[i] = false
			:: else
			fi;
			need(i);
			add(i);
			check() }
		/* queue.AddAll, and the adds of FIFO.Replace */
		:: d_step { i == 0 && accepts ->
			n = 0;
			do
			:: n < ITEMS -> asked[n] = !closed || asked[n]; later[n] = later[n] && closed; n++
			:: else -> break
			od;
			h = 0;
			do
			:: h < ITEMS -> need(h); add(h); h++
			:: else -> break
			od;
			settle();
			check() }
		/* queue.Cancel, FIFO.DeleteKey */
		:: d_step { is(i, INTABLE) ->
			asked[i] = false;
			later[i] = false;
			cancel(i);
			settle();
			check() }
#ifndef KEEPSPLACE
		:: atomic { !closed -> select(due : AGO .. NOW + AHEAD);
			if
			/* delayingQueue.addAfter */
			:: d_step { true ->
				later[i] = true;
				need(i);
				wait(i, due);
				arm();
				check() }
#ifndef LIVE
			/* delayingQueue.Reschedule */
			:: d_step { true ->
				if
				:: is(i, INTABLE) -> cancel(i); asked[i] = false
				:: else
				fi;
				later[i] = true;
				need(i);
				wait(i, due);
				arm();
				settle();
				check() }
#endif
			fi;
			due = 0 }
#endif
		:: else
		fi;
		i = 0 }
	od
}

/* The runtime's timer, and the functions that it starts. */
proctype timers() {
end:	do
	:: d_step { timer != STOPPED && timer <= NOW && fires < FIRES -> timer = STOPPED; fires++; check() }
	/* delayingQueue.fire */
	:: d_step { fires > 0 -> fire(NOW); check() }
	:: d_step { fires > 0 -> fire(AGO); check() }
	od
}

#define sooner(t) if :: t != STOPPED && t > AGO -> t-- :: else fi
#define comes(t) (t != STOPPED && t > AGO)

/* A tick of the clock. */
proctype clocks() {
end:	do
	:: d_step { waiters > 0 && at[waits[waiters - 1]] > AGO || comes(alarm) || comes(timer) ->
		n = 0;
		do
		:: n < ITEMS -> sooner(at[n]); n++
		:: else -> break
		od;
		sooner(alarm);
		sooner(timer);
		n = 0 }
	od
}

/* When nothing moves any more: everybody has been served and nothing is left. */
proctype theEnd() {
	timeout ->
	d_step {
		n = 0;
		do
		:: n < ITEMS -> Q11 = marks[n] == 0; assert(Q11); n++
		:: else -> break
		od;
		n = 0;
		do
		:: n < DRAINS -> Q7 = drainer[n] == OUT; assert(Q7); n++
		:: else -> break
		od;
		n = 0;
		do
		:: n < WORKERS ->
			Q6 = worker[n] == (closed -> ENDED : SLEEP); assert(Q6);
			Q8 = !token[n]; assert(Q8);
			n++
		:: else -> break
		od;
		Q8 = woken == 0; assert(Q8);
		E6 = alarm == STOPPED && timer == STOPPED && fires == 0; assert(E6)
	}
}

init {
	byte p;
	atomic {
		for (p : 0 .. WORKERS - 1) { run workers(p) }
		run callers();
#ifndef KEEPSPLACE  /* a FIFO knows neither drains nor time */
		for (p : 0 .. DRAINS - 1) { run drainers(p) }
		run timers();
		run clocks();
#endif
		run theEnd();
		p = 0
	}
}

#ifdef LIVE
/*
 * An item that was accepted is handed out in the end, and one that waits comes due, unless it is
 * taken back: if every process that can go on goes on (weak fairness). Callers may go on calling
 * for ever, getters giving up and coming again; but Reschedule is left out, which may postpone
 * for ever.
 */
ltl handedOut { [] (asked[0] -> <> !asked[0]) && [] (later[0] -> <> !later[0]) }
#endif
