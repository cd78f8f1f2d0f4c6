// Package flood has clients that send too much, take too little, or never go on, many at once, with credentials and
// without. What is asserted: a client that behaves is answered all the while, and the process stays small.
package flood
