package main

import "strings"

// A target is what a ratio should be at least: how many times as much as ours a rival
// takes, of time or memory.
type target struct {
	bench   string // how the benchmark's name begins
	key     string // its key=, or any
	rival   string // or any
	least   float64
	stretch bool // a wish
}

// targets are tried in order: the first that fits a benchmark and a rival counts.
var targets = []target{
	{bench: "Cycle/", key: "int", rival: "client-go", least: 2.2},
	{bench: "Cycle/", rival: "client-go", least: 3},
	{bench: "Cycle/", rival: "floor", least: 0.83},
	{bench: "Cycle/", rival: "channel", least: 0.67, stretch: true},
	{bench: "BurstAgain/", key: "int", rival: "client-go", least: 1.3},
	{bench: "BurstAgain/", rival: "client-go", least: 3},
	{bench: "BurstFresh/", key: "int", rival: "client-go", least: 1.1},
	{bench: "BurstFresh/", rival: "client-go", least: 2.2},
	{bench: "DuplicateAdd/", rival: "client-go", least: 1.2},
	{bench: "Contended/", key: "struct", rival: "client-go", least: 1.5},
	{bench: "Contended/", key: "int", rival: "client-go", least: 1},
	{bench: "ContendedDistinct/", key: "struct", rival: "client-go", least: 1.5},
	{bench: "ContendedDistinct/", key: "int", rival: "client-go", least: 1},
	{bench: "Park/", rival: "client-go", least: 1.7},
	{bench: "Fire/", rival: "client-go", least: 2.5},
	{bench: "Retry/delay=0s/", rival: "client-go", least: 2},
	{bench: "Priorities/", rival: "controller-runtime", least: 8},
	{bench: "DeltaReplaceFresh/", rival: "client-go", least: 2.2},
	{bench: "Delta", rival: "client-go", least: 3},
	{bench: "Store", rival: "client-go", least: 1.5},
	{bench: "Memory/waiting/", rival: "client-go", least: 1.33},
	{bench: "Memory/", least: 1},
}

const mostKept = 1024 // KiB that we may keep after a burst

func targetOf(bench, rival string) (target, bool) {
	for _, t := range targets {
		key := t.key == "" || strings.HasSuffix(bench, "key="+t.key)
		if strings.HasPrefix(bench, t.bench) && key && (t.rival == "" || t.rival == rival) {
			return t, true
		}
	}
	return target{}, false
}

func (t target) met(ratio float64) bool { return ratio >= t.least }
