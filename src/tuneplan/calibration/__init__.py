"""What measured runs teach about the physics: few numbers for each quantity, chip and program.

Nothing here changes a formula. Residuals of published runs become a distribution around the likely
figure, the narrower the closer the runs are to the job, and, where that helps on runs that were
held out, a factor on the likely figure.
"""
