// Package failing has a test that fails without any mutant.
package failing

func zero() int { return 0 }
