// Package promela checks a model of the queues' core with the model checker spin: core.pml,
// which says how it maps to the Go code. It has no API; its tests run the checker, and the
// script run does so too, which says plainly if spin is not there.
//
// With PROMELA_LARGE=1 more of everything is searched, which takes minutes and 1 GB. To see the
// way to an error, here to a fault on purpose:
//
//	spin -DFAULT_ONE_DRAIN_RETURNS -DBREADTH_FIRST -a core.pml
//	gcc -w -DSAFETY -DNOFAIR -DBFS -o pan pan.c && ./pan
//	spin -DFAULT_ONE_DRAIN_RETURNS -DBREADTH_FIRST -t -p core.pml
package promela
