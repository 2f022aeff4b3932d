// Package kube is what binds typedqueue to Kubernetes: for now the benchmarks against the
// originals, in its tests, and in report the program that turns them into tables and charts.
package kube
