package page

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxText is how many bytes of a key are shown, and how long a name may be.
const maxText = 256

// text returns key as fmt prints it with %v, but for pointers.
func text(key any) (s string) {
	defer func() {
		if r := recover(); r != nil { // fmt lets a panic pass whose own value panics when it is printed
			s = fmt.Sprintf("(the text of a %T panics)", key)
		}
	}()
	switch key.(type) {
	case fmt.Formatter, fmt.Stringer, error:
		return fmt.Sprint(key)
	}
	switch v := reflect.ValueOf(key); v.Kind() {
	case reflect.String:
		return v.String() // not copied: it may be long
	case reflect.Pointer:
		return fmt.Sprintf("%T(%p)", key, key) // fmt would read what it points to
	}
	return fmt.Sprint(key)
}

// cut returns the beginning of s, and the length of s if that is not all of it.
func cut(s string) (head string, bytes int) {
	if len(s) <= maxText {
		return s, 0
	}
	end := maxText
	for end > maxText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end], len(s)
}

// piece is a part of a text as it is shown.
type piece struct {
	Text    string
	Escaped bool // Text stands for something that cannot be shown
}

// pieces takes a text apart. What is not printable in Go's sense, the controls of direction
// included, and what is not UTF-8, becomes Go's escape for it.
func pieces(s string) []piece {
	if s == "" {
		return []piece{{"(empty)", true}}
	}
	var all []piece
	for len(s) > 0 {
		plain := 0
		for plain < len(s) {
			r, n := utf8.DecodeRuneInString(s[plain:])
			if !shows(r, n) {
				break
			}
			plain += n
		}
		if plain > 0 {
			all = append(all, piece{s[:plain], false})
			s = s[plain:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		all = append(all, piece{escape(r, s[:n]), true})
		s = s[n:]
	}
	return all
}

// plain returns s as it is shown.
func plain(s string) string {
	var b strings.Builder
	for _, p := range pieces(s) {
		b.WriteString(p.Text)
	}
	return b.String()
}

// shows reports whether a rune of n bytes can be shown as it is.
func shows(r rune, n int) bool {
	return strconv.IsPrint(r) && (r != utf8.RuneError || n > 1)
}

func escape(r rune, encoded string) string {
	if r == utf8.RuneError {
		return fmt.Sprintf(`\x%02x`, encoded[0])
	}
	return strings.Trim(strconv.QuoteRune(r), "'")
}

// seconds is a duration that JSON gets as seconds, and people in two units at most.
type seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, time.Duration(s).Seconds(), 'f', -1, 64), nil
}

func (s seconds) String() string {
	d := time.Duration(s)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour && d%time.Minute == 0: // an age is so only by chance, but a setting often
		return fmt.Sprintf("%d m", d/time.Minute)
	case d < time.Hour:
		return fmt.Sprintf("%d m %02d s", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %02d m", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %02d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// grouped returns n with its digits in groups of three.
func grouped[N int | uint64](n N) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// perSecond returns a rate with three digits that count.
func perSecond(rate float64) string {
	switch {
	case rate >= 99.95:
		return grouped(uint64(rate + 0.5))
	case rate >= 9.995:
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return strconv.FormatFloat(rate, 'f', 2, 64)
}
