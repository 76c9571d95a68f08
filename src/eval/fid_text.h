// fid_text.h - `jempp fid A B`: how near the images of A are to those of B, the reference.
// `jempp fid A --out FILE.npz`: the statistics of A.
#ifndef FID_TEXT_H
#define FID_TEXT_H
#include "base/events.h"
#include "conf/config.h"

// A and B: an image set (NAME: its training images, NAME:test), a folder of pictures, an npz file
// with images or statistics, a run folder (its replay buffer). Text or, with use->json, JSON;
// malloc'd, NULL with err.
char *fid_text(const Config *use, const char *a, const char *b, const Events *ev, Err *err);
// Writes the statistics of one of these to use->out, an npz file, and says so.
char *fid_statistics(const Config *use, const char *a, const Events *ev, Err *err);
#endif
