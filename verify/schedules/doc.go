// Package schedules lets rapid draw when each of several clients acts, in a bubble whose time
// nothing but their sleeping moves on, and checks what they saw with the models of package
// linear, and that nobody sleeps who ought not to. So a run is a function of what was drawn, and
// an interleaving that goes wrong shrinks to a timetable of a few lines.
//
// Time is cut into rounds. In each round every client has a moment of its own, and so have the
// queue's timer and the deadlines of contexts: no two ever act at once. Between two calls a
// client sleeps for as many rounds as were drawn.
//
// Calls that take a lock more than once have windows between their lock sections, in which others
// may act. So the package under test is built with a mutex that sleeps for as many rounds as
// were drawn, before it is locked and after it is unlocked, never while it is. Whatever lock
// sections there are, now or later, in calls, in getters that sleep, and in what the timer calls,
// all their windows are open, and the package needs no hooks. That is done with the go command's
// -overlay, which replaces files for one build; the test here makes the overlay, builds itself
// with it, and runs that. The self-test builds faults in as well.
//
// RAPID_CHECKS=1000000 go test -run TestSchedules ./schedules looks at more schedules than usual.
package schedules
