package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// marker is the name of the file at the top of a destination which says that the mirror
// made it. It is the one name that is not mirrored; below the top it is like any other.
const marker = ".typedqueue-mirror"

const markerText = "This directory is a mirror: whatever its source does not hold is deleted.\n"

// errRefused is what every refusal is, as opposed to a failure.
var errRefused = errors.New("refused")

// separate refuses trees of which one is, or is in, the other. It compares directories,
// not names, and climbs from where the names really lead.
func separate(src, dst string) error {
	from, err := os.Stat(src)
	if err != nil {
		return err
	}
	existing, err := deepestExisting(dst)
	if err != nil {
		return err
	}
	if inside(existing, from) {
		return fmt.Errorf("%w: %q is the source %q, or in it", errRefused, dst, src)
	}
	if to, err := os.Stat(dst); err == nil && inside(src, to) {
		return fmt.Errorf("%w: the source %q is in %q", errRefused, src, dst)
	}
	return nil
}

// deepestExisting resolves the part of name that exists.
func deepestExisting(name string) (string, error) {
	for {
		real, err := filepath.EvalSymlinks(name)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return real, err
		}
		if _, err := os.Lstat(name); err == nil {
			return "", fmt.Errorf("%w: %q is a link to nowhere", errRefused, name)
		}
		name = filepath.Dir(name)
	}
}

// inside reports whether name, or a directory above it, is dir.
func inside(name string, dir fs.FileInfo) bool {
	for {
		if info, err := os.Stat(name); err == nil && os.SameFile(info, dir) {
			return true
		}
		up := filepath.Dir(name)
		if up == name {
			return false
		}
		name = up
	}
}

// openSource returns the source and its real name, by which it is watched.
func openSource(src string) (*os.Root, string, error) {
	real, err := filepath.EvalSymlinks(src)
	if err != nil {
		return nil, "", err
	}
	top, err := os.OpenRoot(real)
	return top, real, err
}

// openDestination opens dst, made if need be, for the mirror alone: a directory that
// holds something and that the mirror did not make is refused, unless forced.
func openDestination(dst string, force bool) (*os.Root, error) {
	if err := os.MkdirAll(dst, 0o700); err != nil {
		return nil, err
	}
	top, err := os.OpenRoot(dst)
	if err != nil {
		return nil, err
	}
	if err := claim(top, force); err != nil {
		_ = top.Close()
		return nil, err
	}
	return top, nil
}

// claim sets the marker. It comes before anything else, so that a mirror which was
// killed is recognized by the next one.
func claim(top *os.Root, force bool) error {
	at := &spot{dir: top, name: marker, top: top}
	if f, err := at.describe(marker); err == nil && f.Mode.IsRegular() {
		return nil
	}
	names, err := readDir(top, ".")
	if err != nil {
		return err
	}
	if len(names) > 0 && !force {
		return fmt.Errorf("%w: %q is not empty, and no mirror made it (-force deletes what it holds)", errRefused, top.Name())
	}
	if err := top.RemoveAll(marker); err != nil { // a link or a directory of this name
		return err
	}
	out, err := top.OpenFile(marker, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = out.WriteString(markerText)
	return errors.Join(err, out.Close())
}

// resolution finds how finely a destination keeps times, by setting one.
func resolution(top *os.Root) (time.Duration, error) {
	want := time.Unix(1_000_000_001, 123_456_789)
	if err := top.Chtimes(marker, time.Time{}, want); err != nil {
		return 0, err
	}
	info, err := top.Lstat(marker)
	if err != nil {
		return 0, err
	}
	for _, step := range []time.Duration{1, 100, time.Microsecond, time.Millisecond, time.Second} {
		if info.ModTime().Equal(want.Truncate(step)) {
			return step, nil
		}
	}
	return 2 * time.Second, nil
}
